"""Made-up texts with worked sums, in many forms, for `scripts/headline.py`.

A text has 15 to 70 words, one to six sentences, and one or two sums; the result of each follows its operands, and no
number before it is the same. About half of the texts have results after "=". In a pattern, {a} and {b} are the operands of the
first sum and {c} its result; {c} or {f} and {d} are those of the second, and {e} its result. The kinds of sum before it are one
of each word: `+5` has operands of up to five digits, `+2>*` continues with the result, `*;-3` is two sums.
"""

import re
import string
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from random import Random

Pattern = tuple[str, str]

NAMES = """Agnes Ahmed Aisha Alma Anton Beatriz Bjorn Callum Carmen Chidi Dagny Deepa Dmitri Edith Emeka Farah Femi Greta Hamza
Hanna Ines Isaac Jonas Juno Kaito Kemal Lars Leila Lucia Magnus Marta Mei Milan Nadia Noor Olga Otto Pablo Petra Quentin Rania
Rosa Samir Sofia Tariq Thea Umar Vera Wanda Xavier Yara Zeno""".split()
THINGS = """apples pencils tiles bricks candles tickets stamps jars lanterns buttons chairs seedlings postcards marbles bulbs
envelopes loaves blankets bottles badges cushions ropes screws lemons melons notebooks onions parcels plates posters pumpkins
ribbons shells spoons stools tulips umbrellas walnuts whistles batteries beads brushes hooks kites mugs napkins planks pebbles
""".split()
PLACES = """Aarhus Antwerp Bergen Bologna Bristol Cardiff Cork Dakar Darwin Dundee Durban Exeter Fez Galway Ghent Graz Hobart
Inverness Izmir Kigali Kyoto Lagos Leeds Leipzig Lima Ljubljana Lyon Malmo Mombasa Nairobi Nelson Oaxaca Oslo Perth Porto Pune
Quebec Riga Salta Seville Tampere Tartu Turin Utrecht Vilnius Zadar""".split()
UNITS = "kg litres metres km miles grams tonnes yards gallons acres minutes hours pallets pages".split()
STREETS = [
    f"{name} {kind}"
    for name in ("Mill", "Station", "Chapel", "Orchard", "Harbour", "Tanner")
    for kind in ("Lane", "Street")
]


def _patterns() -> dict[str, list[Pattern]]:
    """The patterns of `sums_patterns.txt` by family: under [family], a line with the kinds of sum, a bar, and the pattern."""
    families: dict[str, list[Pattern]] = {}
    for line in Path(__file__).with_name("sums_patterns.txt").read_text(encoding="utf-8").splitlines():
        if line.startswith("["):
            family = families.setdefault(line.strip("[]"), [])
        elif line:
            kinds, _, text = line.partition(" | ")
            family.append((kinds, text.replace("\\n", "\n")))
    return families


PATTERNS = _patterns()

BEFORE = [
    "The shop at {house} {street} has been in the same family since {year}.", "{N} turned {age} in March.",
    "It was the wettest week in {place} since {year}.", "Bus {house} was late again.",
    "Room {house} smelled of floor polish that morning.", "{N} moved here from {place} in {year}.",
    "We still live at {house} {street}, above the bakery.", "This goes back to a habit from {year}.",
    "{N}, aged {age}, does all of it in pencil.", "The file is number {house}, opened in {year}.",
    "The note was found in an old coat.", "Nobody had slept much the night before.",
]  # fmt: skip
AFTER = [
    "The building dates from {year}.", "The next bus, the {house}, left without us.", "{N} will be {age} next spring.",
    "The rest is in folder {house}.", "A copy hangs at {house} {street}.", "It rained, as it had in {year}.",
    "After that we all went out for soup.", "The radio played a song from {year}.", "The kettle was on by then.",
    "Ask at {house} {street} if anything is unclear.", "Nothing like it had happened since {year}.",
]  # fmt: skip
_WORDS = {"+": "plus", "-": "minus", "*": "times", "/": "divided by"}
_NOUNS = {"+": "sum", "-": "difference", "*": "product", "/": "quotient"}
_NUMBER = re.compile(r"\d+(?:,\d{3})*(?:\.\d+)?")
_END = re.compile(r"[.?!](?=[\s\"]|$)")
_AFTER_EQUALS = re.compile(r"= ?(?:\{k\})?\{[ce]\}")


@dataclass(frozen=True)
class Sum:
    operands: tuple[int, int]
    operator: str
    """+ - * /, % for the second operand as percent of the first, or m for the mean of both."""
    result: str
    """As the text has it from `position` on: 1250 or 1,250, -7, 2.50."""
    position: int


@dataclass(frozen=True)
class Text:
    text: str
    sums: tuple[Sum, ...]
    family: str
    pattern: str


def texts(seed: int) -> Iterator[Text]:
    """Texts without end, no two of them equal."""
    random = Random(seed)
    patterns = [(family, *pattern) for family, those in PATTERNS.items() for pattern in those]
    groups: dict[bool, list[tuple[str, str, str]]] = {True: [], False: []}
    for each in patterns:
        groups[bool(_AFTER_EQUALS.search(each[2]))].append(each)
    seen = set()
    while True:
        family, kinds, pattern = random.choice(groups[random.random() < 0.5])
        made = _made(random, random.choice(kinds.split()), pattern)
        if made and made[0] not in seen:
            seen.add(made[0])
            yield Text(*made, family, pattern)


def _made(random: Random, kinds: str, pattern: str) -> tuple[str, tuple[Sum, ...]] | None:
    """A text of a pattern and its sums, or None where the numbers drawn do not do."""
    first, then, second = kinds.partition(">") if ">" in kinds else kinds.partition(";")
    a, b = _operands(random, first)
    value = _value(first, a, b)
    numbers = {"a": Fraction(a), "b": Fraction(b), "c": value}
    drawn = [(first, a, b, value)]
    if second:
        left = int(value) if then == ">" else None
        if left is not None and (left != value or left < 2):
            return None
        f, d = _operands(random, second, left)
        drawn.append((second, f, d, _value(second, f, d)))
        numbers |= {"f": Fraction(f), "d": Fraction(f if second[0] == "r" else d), "e": drawn[1][3]}
    if any(result * 100 % 1 or result in (-1, 0, 1) for *_, result in drawn):
        return None
    between = "\n" if "\n" in pattern else " "
    chance = random.random()
    whole = f"{random.choice(BEFORE)}{between}" if chance < 0.45 else ""
    whole += pattern + (f"{between}{random.choice(AFTER)}" if 0.25 < chance < 0.6 else "")
    grouped = "," if random.random() < 0.2 else ""
    values = {name: _shown(number, grouped) for name, number in numbers.items()} | _slots(
        random, first, second
    )
    text, positions = "", dict[str, int]()
    for literal, field, _, _ in string.Formatter().parse(whole):
        text += literal
        if field:
            positions.setdefault(field, len(text))
            text += values[field]
    results = [(each, values[name], positions[name]) for each, name in zip(drawn, "ce", strict=False)]
    sums = tuple(Sum((x, y), _operator(kind), shown, at) for (kind, x, y, _), shown, at in results)
    ahead = any(each.result.lstrip("-") in _NUMBER.findall(text[: each.position]) for each in sums)
    fits = 15 <= len(text.split()) <= 70 and len(_END.findall(text)) <= 6
    return (text, sums) if fits and not ahead else None


def _operator(kind: str) -> str:
    return {"n": "-", "r": "-", "q": "/"}.get(kind[0], kind[0])


def _slots(random: Random, first: str, second: str) -> dict[str, str]:
    """The words of a text besides the numbers of its sums."""
    signs = {"*": random.choice("**x×"), "/": random.choice("//÷")}
    signs = {"+": "+", "-": "-", "%": signs["*"]} | signs
    operator, other = _operator(first), _operator(second) if second else ""
    name, another = random.sample(NAMES, 2)
    return {
        **{"s": signs.get(operator, ""), "t": signs.get(other, "")},
        **{"w": _WORDS.get(operator, ""), "v": _WORDS.get(other, ""), "noun": _NOUNS.get(operator, "")},
        **{"N": name, "M": another, "thing": random.choice(THINGS), "place": random.choice(PLACES)},
        **{
            "k": random.choice("$£€"),
            "u": random.choice(UNITS),
            "u2": random.choice(["km", "miles", "metres"]),
        },
        **{
            "u3": random.choice(["crates", "sacks", "baskets"]),
            "do": "add" if operator == "+" else "take away",
        },
        **{
            "street": random.choice(STREETS),
            "house": str(random.randint(2, 180)),
            "n": str(random.randint(2, 40)),
        },
        **{"year": str(random.randint(1890, 2024)), "age": str(random.randint(19, 88))},
    }


def _number(random: Random, most: int) -> int:
    """At least 2, of up to `most` digits; every length is as likely, but for one digit, which is rarer."""
    digits = max(random.randint(1, most), random.randint(1, min(2, most)))
    return random.randint(max(2, 10 ** (digits - 1)), 10**digits - 1)


def _operands(random: Random, kind: str, left: int | None = None) -> tuple[int, int]:
    sort, most = kind[0], int(kind[1:] or 3)
    a = left or _number(random, most)
    b = _number(random, most)
    if sort == "-":
        return (a, random.randint(2, a)) if left else (max(a, b), min(a, b))
    if sort == "n":
        return min(a, b), max(a, b)
    if sort == "r":
        return a + b, a
    if sort == "*":
        a = left or _number(random, min(most, 2 if random.random() < 0.6 else 3))
        return a, _number(random, 2 if a < 100 and most > 1 else 1)
    if sort == "%":
        return a * 20 if a < 100 else a, random.choice(range(5, 96, 5))
    if sort == "q" or (sort == "/" and not left and random.random() < 0.5):
        divisor = _number(random, 2 if most > 2 else 1)
        return divisor * random.randint(2, max(2, (10**most - 1) // divisor)), divisor
    if sort == "/":
        return a, random.choice([n for n in (2, 4, 5, 8, 10, 20, 25, 40) if not left or a * 100 % n == 0])
    return a, b


def _value(kind: str, a: int, b: int) -> Fraction:
    operator = _operator(kind)
    if operator in "*%":
        return Fraction(a * b, 100 if operator == "%" else 1)
    if operator == "/":
        return Fraction(a, b)
    return Fraction(a - b) if operator == "-" else Fraction(a + b, 2 if operator == "m" else 1)


def _shown(number: Fraction, grouped: str) -> str:
    """As the calculator shows it: whole, or with two decimals."""
    if number.denominator == 1:
        return format(number.numerator, grouped)
    cents = abs(int(number * 100))
    return f"{'-' if number < 0 else ''}{format(cents // 100, grouped)}.{cents % 100:02d}"
