"""The figure of the method in README.md, drawn from the published annotation and answers.

    python scripts/method_figure.py

Writes docs/method.svg: a text, the calls sampled at one of its positions with their losses, the kept one, and an answer of the
trained model. The output is deterministic.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any
from xml.sax.saxutils import escape

from scripts import answers
from toolformer.data.parquet import read_table
from toolformer.storage import atomic_write

PATH = Path(__file__).resolve().parents[1] / "docs" / "method.svg"
ANNOTATION, TEXT, POSITION = "d96387c02c4b88d7", "s-004", 94
"""Run of the annotation, id of the text, position of the calls in characters."""
QUESTION = "4da-0029"
WIDTH, LEFT = 860, 24
GREY, ORANGE, BLACK = "#6b7280", "#c2410c", "#222222"


def candidates() -> tuple[str, list[Mapping[str, Any]]]:
    """The text, and the distinct calls scored at the position, the largest gain first."""
    folder = answers.PUBLISHED / "generate" / ANNOTATION
    texts = {row["doc_id"]: row["text"] for row in read_table(folder / "dataset_plain.parquet").to_pylist()}
    rows = [
        row
        for row in read_table(folder / "candidates.parquet").to_pylist()
        if (row["doc_id"], row["position"], row["status"]) == (TEXT, POSITION, "scored")
    ]
    distinct = {row["call_input"]: row for row in sorted(rows, key=lambda row: row["kept"])}
    return texts[TEXT], sorted(distinct.values(), key=lambda row: -row["gain"])


def answer() -> Mapping[str, Any]:
    """An answer of the first Toolformer."""
    rows = min(answers.Answers().by_seed("Toolformer", "arithmetic").items())[1]
    return next(row for row in rows if row["id"] == QUESTION)


def svg() -> str:
    """The figure."""
    text, calls = candidates()
    before, after = text[:POSITION], text[POSITION:].strip()
    lines: list[str] = []
    y = 0

    def write(
        content: str,
        *,
        step: int = 22,
        x: int = LEFT,
        color: str = BLACK,
        weight: str = "normal",
        mono: bool = False,
    ) -> None:
        nonlocal y
        y += step
        family = "monospace" if mono else "sans-serif"
        lines.append(
            f'<text x="{x}" y="{y}" fill="{color}" font-family="{family}" font-size="14" font-weight="{weight}" xml:space="preserve">'
            f"{escape(content)}</text>"
        )

    write("1. A text. Where may a call help?", step=30, weight="bold")
    write(f"{before} ▲")
    write(f"{after.partition(',')[0]} …")
    write(
        "2. The model samples calls, the tool answers. Loss of the next tokens, in nats (kept: a gain of 0.1 or more):",
        step=36,
        weight="bold",
    )
    columns = (LEFT, 460, 560, 660, 740)
    y += 24
    heads = ("", "no call", "no result", "result", "gain")
    for x, head in zip(columns, heads, strict=True):
        lines.append(
            f'<text x="{x}" y="{y}" fill="{GREY}" font-family="sans-serif" font-size="13">{head}</text>'
        )
    for row in calls:
        color = ORANGE if row["kept"] else GREY
        write(f"[Calculator({row['call_input']}) → {row['result']}]", color=color, mono=True)
        losses = (row["loss_none"], row["loss_no_result"], row["loss_result"])
        cells = [f"{loss:.2f}" for loss in losses] + [f"{row['gain']:+.2f}".replace("-", "−")]
        for x, cell in zip(columns[1:], cells, strict=True):
            lines.append(
                f'<text x="{x}" y="{y}" fill="{color}" font-family="sans-serif" font-size="14">{cell}</text>'
            )
    (kept,) = (row for row in calls if row["kept"])
    write(
        "3. The call that lowers the loss is kept, and the model is finetuned on the text:",
        step=36,
        weight="bold",
    )
    write(
        f"{before[-14:].strip()} [Calculator({kept['call_input']}) → {kept['result']}] {after[:9]} …",
        color=ORANGE,
        mono=True,
    )
    write("4. Then it calls the tool by itself:", step=36, weight="bold")
    given = answer()
    write(
        given["prompt"].replace("\n", " ") + given["completion"].replace("->", "→"), color=ORANGE, mono=True
    )
    height = y + 24
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height}" viewBox="0 0 {WIDTH} {height}">\n'
        f'<rect width="{WIDTH}" height="{height}" fill="#ffffff"/>\n' + "\n".join(lines) + "\n</svg>\n"
    )


def main() -> None:
    """Draws the figure."""
    atomic_write(PATH, svg().encode())
    print(PATH)


if __name__ == "__main__":
    main()
