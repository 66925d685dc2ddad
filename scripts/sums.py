"""The texts of `experiment=evidence` with made-up worked sums, in many forms, in place of GSM8K.

    python scripts/evidence.py DIR DIR/evidence
    python scripts/sums.py DIR/evidence/texts

1_open.jsonl    1.jsonl with the 138 sums of the embedded corpus and 462 made-up ones, and none of GSM8K
2_open.jsonl    2.jsonl with 700 further ones, and none of GSM8K

A text has 15 to 70 words, one to six sentences, and one or two sums; the result of each stands after its operands, and no
number before it is the same. About half of the texts have results after "=". In a pattern, {a} and {b} are the operands of the
first sum and {c} its result; {c} or {f} and {d} are those of the second, and {e} its result. The kinds of sum before it are one
of each word: `+5` has operands of up to five digits, `+2>*` continues with the result, `*;-3` is two sums.
"""

import itertools
import json
import re
import string
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from random import Random
from typing import Any

from toolformer.data import demo_corpus
from toolformer.storage import atomic_write

Row = dict[str, Any]

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

_ANY = "+5 -5 *3 /4 n3"
PATTERNS: dict[str, list[Pattern]] = {
    "symbols": [
        (_ANY, "The slip on the notice board read {a} {s} {b} = {c}, and {N} copied it into the ledger before lunch."),
        (_ANY, "{N} worked it out on the back of an envelope: {a} {s} {b} = {c}. Nobody in the {place} office asked to see the envelope."),
        (_ANY, "{a}{s}{b}={c} had been chalked on the cellar wall in {N}'s handwriting, and nobody had the heart to wipe it off."),
        ("+4;-4 *3;+5 /4;*3", "The sheet says {a} {s} {b} = {c}, then {f} {t} {d} = {e}, and {N} has put a tick beside both."),
        (_ANY, "In {N}'s notebook the line {a} {s} {b} = {c} is underlined twice, next to a small drawing of a cat."),
        ("+3>-3 *2>+4 -4>+4 q3>*", "First {a} {s} {b} = {c}, and after that {c} {t} {d} = {e}, which is the figure to send to {place}."),
        (_ANY, "Punched into the old machine, {a} {s} {b} printed as {c}, in purple ink, on paper that had seen better days."),
    ],
    "brackets": [
        ("*3", "The {place} depot keeps {a} crates of {b} {thing} each ({a} {s} {b} = {c}), and only {N} has the key."),
        ("+3", "{N} drove {a} km on Monday and {b} km on Tuesday ({a} {s} {b} = {c}), most of it behind a tractor."),
        ("-4", "Of the {a} tickets printed for {place}, {b} came back unsold ({a} {s} {b} = {c} sold), which {N} calls a good year."),
        ("q4", "A book of {a} pages in {b} evenings ({a} {s} {b} = {c} pages an evening) is a pace that {N} can keep."),
        ("*2>-2", "{N} bought {a} boxes of {b} {thing} ({a} {s} {b} = {c}) and gave {d} of them away ({c} {t} {d} = {e}) before the weekend."),
        ("+5 -5", "The new figure for {place} (that is, {a} {w} {b}, or {c}) replaces the one printed on the poster."),
    ],
    "words": [
        (_ANY, "{a} {w} {b} is {c}, said {N}, without looking up from the crossword in the {place} paper."),
        ("+4 *3", "As {N} likes to say, {a} {w} {b} makes {c}, whatever the weather in {place} is doing."),
        (_ANY, "{a} {w} {b} equals {c}. That was the first line on the sheet that {N} handed in, and the neatest."),
        ("+5 -5 *3", "By my count {a} {w} {b} comes to {c}, but {N} may want to go over it again tonight."),
        ("+4;*3 -4;+3 *3;/4", "{N} knows by heart that {a} {w} {b} is {c}, and had no trouble seeing that {f} {v} {d} is {e}."),
        (_ANY, "Out loud it sounded simple enough: {a} {w} {b}, so {c}, and on to the next one before the bell rang."),
    ],
    "noun of": [
        ("+5 *3", "The {noun} of {a} and {b} is {c}, which {N} wrote in the last column of the page."),
        ("+5 -5 *3", "{N} was asked for the {noun} of {a} and {b}, thought for a moment, and gave {c} as the answer."),
        ("-5", "Between {a} and {b} there is a difference of {c}, and that gap is what the people of {place} argue about."),
        ("/4 q4", "The quotient of {a} and {b} is {c}. {N} had the right answer but had written it upside down."),
        ("+5 *3 -4", "For the {noun} of the two numbers {a} and {b} we have {noun} = {c}, as the margin of the old workbook shows."),
        ("+3>*", "The sum of {a} and {b} is {c}. The product of that and {d} is {e}, and there the note from {N} ends."),
    ],
    "doing": [
        ("+5", "Adding {b} to {a} gives {c}, and with that the stock list for {place} is complete at last."),
        ("-5", "Taking {b} away from {a} leaves {c}, which is what {N} had expected before anyone opened the cupboard."),
        ("*3", "Multiplying {a} by {b} gives {c}; the clerk in {place} got the same on a slide rule."),
        ("/4", "Dividing {a} by {b} gives {c}, and {N} rounds nothing, because the inspector checks every line."),
        ("+5", "If you add {a} and {b} you end up with {c}, so the hall in {place} will need a bigger table."),
        ("-4 n3", "Subtract {b} from {a} and what remains is {c}. {N} put a circle around it and went home."),
        ("q4", "Share {a} {thing} equally among {b} people and each of them receives {c}, with nothing left in the bag."),
        ("*2>+3", "Multiply {a} by {b} to get {c}, then add {d} to reach {e}, as the card on the counter in {place} explains."),
        ("-4 +5", "Start from {a}, {do} {b}, and you arrive at = {c}; {N} marks every such step with the same sign."),
    ],
    "left over": [
        ("-5", "{a} less {b} leaves {c}, and no amount of recounting in {place} is going to change that."),
        ("+4", "{a} and {b} together make {c}, which is more {thing} than {N} had ever seen in one room."),
        ("-4", "{a} reduced by {b} is {c}, so the order that {N} sent to {place} has to be corrected."),
        ("*3", "{a} lots of {b} make {c}, and {N} carried every one of them up the stairs alone."),
        ("+5", "{a} increased by {b} is {c}. Someone in {place} must have counted the {thing} in the back room as well."),
        ("q4 /4", "{a} split {b} ways works out at {c} for each, as {N} explained to everyone waiting in the corridor."),
        ("-4", "Counting down from {a} by {b} brings us to {c}, the number on the lid of the box from {place}."),
    ],
    "story": [
        ("+3", "{N} had {a} {thing}, found {b} more in the attic, and now has {c} of them lined up along the hall."),
        ("-3", "There were {a} {thing} on the stall in {place} this morning. {N} sold {b} before noon, so {c} were still there after lunch."),
        ("*3", "{N} packed {a} trays and put {b} {thing} on each. That is {c} {thing} in all, and the van is nearly full."),
        ("q3", "{N} has {a} {thing} to divide evenly between {b} schools near {place}. Each school gets {c}, delivered on Friday."),
        ("+3>-2", "{N} began the week with {a} {thing} and was given {b}, which made {c}. By Sunday {d} were broken and {e} were left."),
        ("+3", "{N} counted {a} {thing} and {M} counted {b}, so {a} {s} {b} = {c} went into the report to {place}."),
        ("-3", "{N} wanted {a} {thing} but the shop in {place} had sent {b}, so {a} {s} {b} = {c} are still missing."),
        ("*2>-3", "With {a} shelves of {b} {thing} there were {a} {s} {b} = {c}. {M} took {d} to {place}, and {c} {t} {d} = {e} stayed."),
        ("+4", "The museum in {place} owned {a} {thing} before {N} left it another {b}; its catalogue now lists {c}."),
        ("-3", "{N} is {a} pages into the diary of {M}, who stopped writing at page {b} the first time; {c} pages lie between the two."),
        ("*1 *3", "Every one of the {a} guests in {place} received {b} {thing}, so {N} had to wrap {c} before the doors opened."),
    ],
    "money": [
        ("*2>r3", "{N} bought {a} {thing} at {k}{b} each, which came to {k}{c}. Out of {k}{d} the cashier in {place} handed back {k}{e}."),
        ("+4", "Rent was {k}{a} and heating {k}{b}, so {N} paid {k}{c} to the landlord in {place}."),
        ("-4", "The coat had cost {k}{a} until {place} took {k}{b} off the price; {N} paid {k}{c} and wore it home."),
        ("*3", "At {k}{a} a night for {b} nights the room in {place} costs {k}{a} {s} {b} = {k}{c}, breakfast not included."),
        ("/4 q4", "The bill of {k}{a} was shared by {b} friends, {k}{a} {s} {b} = {k}{c} each, and {N} paid for the taxi."),
        ("n3", "With {k}{a} in the account and {k}{b} going out on Friday, {N}'s balance will be {c}, and the bank in {place} will write."),
        ("+4>-3", "Ticket sales brought {k}{a} and the raffle {k}{b}, {k}{c} together; after {k}{d} for the band, {N} banked {k}{e}."),
    ],
    "lists": [
        ("+4", "Invoice for {N}, {place}\nDelivery of {thing}: {k}{a}\nFitting and removal of the old ones: {k}{b}\nTotal: {k}{c}\nPayable within a month."),
        ("-4", "Stock of {thing} in the {place} store\nIn at the start of the week: {a}\nOut to customers: {b}\nRemaining: {c}\nCounted by {N}"),
        ("*3", "item | number | price | amount\n{thing} | {a} | {k}{b} | {k}{c}\nPlease send the goods to {N} at the {place} address."),
        ("+3", "morning | afternoon | day\n{a} | {b} | {c}\nVisitors to the {place} garden, as counted at the gate by {N} and a volunteer."),
        ("*2>+3", "- {a} sacks of {b} kg: {a} {s} {b} = {c} kg\n- plus the loose {d} kg: {c} {t} {d} = {e} kg\nSigned by {N} at the {place} weighbridge."),
        ("+4>-3", "Wages: {k}{a}\nHoliday pay: {k}{b}\nGross: {k}{c}\nTax: {k}{d}\nNet: {k}{e}\nPaid to {N} by bank transfer on the last working day."),
        ("-4 +4", "Meter at {place}, first reading {a}, change {s}{b}, second reading = {c}. The reader was {N}, who found the gate open."),
    ],
    "dialogue": [
        (_ANY, '"What is {a} {w} {b}?" asked {N}, pen in hand.\n"{c}," said {M}, who was already looking for the next page.'),
        (_ANY, "{N}: How much is {a} {w} {b}? I left my glasses on the bus to {place}.\n{M}: {c}."),
        ("+4 -4 *3", "Q: {a} {s} {b} = ?\nA: {c}\nThe card belongs to a set that {N} made for the children in {place}."),
        ("+4", '"I make it {a} on the left and {b} on the right. Altogether?" called {N}.\n"{c}!" {M} shouted from the top of the ladder.'),
        ("-4", '"They sent {a} and we used {b}, so what have we got?"\n"{c}," {M} answered, and wrote it on the box for {place}.'),
        ("q3", '"If {a} {thing} go into {b} boxes, how many in each?" {N} wanted to know. "Exactly {c}," said the man from {place}.'),
        ("*3", '{N} asked what {a} rows of {b} seats would hold. "{a} {s} {b} = {c}," wrote {M} from {place}, and nothing more.'),
        (_ANY, "{N} texted: quick, {a} {s} {b}?\n{M} texted back: {c}\nThen neither of them wrote again until the train reached {place}."),
        ("+3>*", '"{a} and {b}?" "{c}." "And {d} times that?" "{e}." {N} never paused, and the whole class in {place} clapped.'),
    ],
    "exercises": [
        (_ANY, "Exercise {n}\nWork out {a} {s} {b} without a machine and show your working to a neighbour.\nSolution\n{a} {s} {b} = {c}"),
        (_ANY, "Exercise {n}. Calculate {a} {w} {b}, and write the answer in the box at the foot of the page.\nAnswer: {c}"),
        ("+3 -3", "Problem {n}\n{N} has {a} {thing} and {M} has {b}. What is the {noun} of the two numbers?\nSolution\nIt is {c}."),
        ("*3", "Question {n}: a carton holds {a} {thing}. How many {thing} are there in {b} cartons from {place}?\nWorking: {a} {s} {b} = {c}"),
        ("q4", "Task {n}\nA ribbon {a} cm long is cut into {b} equal pieces. How long is each piece?\nResult: {c} cm"),
        ("+3>- -4>+3 *2>-", "Exercise {n}, in two steps\nStep one: {a} {s} {b} = {c}\nStep two: {c} {t} {d} = {e}\nCompare with the answer of {N}."),
        ("+4;-4 *3;/4", "Test for {N}, sheet {n}\n(i) {a} {s} {b}, answer {c}\n(ii) {f} {t} {d}, answer {e}\nBoth are right, well done."),
    ],
    "percent": [
        ("%", "{b}% of {a} is {c}, so that many people in {place} said yes when {N} knocked on their doors."),
        ("%", "{N} left a deposit of {b} percent on the price of {k}{a}, in other words {k}{c}, with the dealer in {place}."),
        ("%", "The shop in {place} takes {b}% off {k}{a}, a saving of {k}{c}, and {N} is tempted to buy two."),
        ("%", "Of {a} {u} of paper collected in {place}, {b}% was spoiled by rain: {a} {s} {b}% = {c} {u}, says {N}."),
        ("%>r", "Commission at {b}% on {k}{a} = {k}{c}. {N} had asked for {k}{d}, so the two are {k}{d} - {k}{c} = {k}{e} apart."),
    ],
    "average": [
        ("m3", "The average of {a} and {b} is {c}, which {N} entered as the reading for {place}."),
        ("m3", "{N} scored {a} in the first round and {b} in the second, an average of {c} over the two rounds in {place}."),
        ("m4", "Halfway between {a} and {b} lies {c}, and that is where the committee in {place} finally agreed to settle."),
        ("m3", "Two samples from {place} weighed {a} and {b} grams, so the mean is ({a} + {b}) / 2 = {c} grams, as {N} noted."),
    ],
    "measures": [
        ("+3", "{N} walked {a} {u2} to {place} and another {b} {u2} beyond it, a journey of {c} {u2} in new shoes."),
        ("-4", "The tank in {place} held {a} litres at dawn and had lost {b} by dusk; the gauge then showed {c} litres."),
        ("*3", "Each wall needs {a} {thing} and there are {b} walls, so the builders in {place} ordered {a} {s} {b} = {c} and a spare bag of nails."),
        ("/4", "The train covers {a} km in {b} hours, an average speed of {c} km an hour between here and {place}."),
        ("/4", "{N} cut {a} metres of rope into {b} equal lengths, {a} {s} {b} = {c} metres each, and tied up the boats."),
        ("n2", "It was {a} degrees at noon in {place} and then fell by {b} degrees; {N}'s thermometer showed {c} at midnight."),
        ("n2", "The lift was on floor {a} and went down {b} floors, {a} {s} {b} = {c}, to the archive under {place} where {N} works."),
        ("+3>/", "{N} filled {a} {u3} and {M} {b}, which makes {c} {u3}. Over {d} shops that is {e} {u3} a shop."),
    ],
}  # fmt: skip

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

    @property
    def expression(self) -> str:
        left, right = self.operands
        special = {"%": f"{left} * {right} / 100", "m": f"({left} + {right}) / 2"}
        return special.get(self.operator, f"{left} {self.operator} {right}")


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
    """What stands in a text besides the numbers of its sums."""
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


def rows(seed: int) -> Iterator[Row]:
    return ({"id": f"forms/{number}", "text": each.text} for number, each in enumerate(texts(seed)))


def open_texts(first: Iterable[Row], second: Iterable[Row]) -> tuple[list[Row], list[Row]]:
    """The rows of 1_open.jsonl and 2_open.jsonl, from those of 1.jsonl and 2.jsonl: other sums, the same dates and pairs."""
    own: Iterator[Row] = ({"id": each.doc_id, "text": each.text} for each in demo_corpus("sums"))
    first = list(first)
    sums = itertools.chain(own, itertools.islice(rows(1), 462))
    dated, pairs = ([row for row in first if field in row] for field in ("date", "source_id"))
    further = itertools.islice(rows(1), 462, 1162)
    return _in_turn(sums, dated, pairs), _in_turn(further, (row for row in second if "source_id" in row))


def _in_turn(*kinds: Iterable[Row]) -> list[Row]:
    return [row for each in itertools.zip_longest(*kinds) for row in each if row]


def main(folder: Path) -> None:
    first, second = (map(json.loads, open(folder / f"{name}.jsonl", encoding="utf-8")) for name in "12")
    for name, those in zip(("1_open", "2_open"), open_texts(first, second), strict=True):
        lines = [json.dumps(row, ensure_ascii=False) + "\n" for row in those]
        atomic_write(folder / f"{name}.jsonl", "".join(lines).encode())
        print(f"{folder / name}.jsonl: {len(lines)} texts")


if __name__ == "__main__":
    if len(sys.argv) != 2:
        print("python scripts/sums.py FOLDER, of the texts 1.jsonl and 2.jsonl", file=sys.stderr)
        sys.exit(2)
    try:
        main(Path(sys.argv[1]))
    except OSError as error:
        print(f"sums: {error}", file=sys.stderr)
        sys.exit(2)
