"""What tests of several packages build: data folders of benchmarks."""

import gzip
import json
from pathlib import Path
from typing import Any

Row = dict[str, Any]

SVAMP = {"id": "chal-1", "body": "Each pack costs 76 dollars.", "question": "How much?", "answer": 76.0}
ASDIV = [
    {"id": "nluds-0001", "body": "Two and 7.", "question": "How many?", "answer": "9 (apples)"},
    {"id": "nluds-0002", "body": "A recipe.", "question": "Which ratio?", "answer": "2:1"},
    {"id": "nluds-0003", "body": "Two boxes.", "question": "How many each?", "answer": "3 (red); 4 (blue)"},
    {"id": "nluds-0004", "body": "A race.", "question": "Who won?", "answer": "Tim"},
    {"id": "nluds-0005", "body": "A pizza.", "question": "How much is left?", "answer": "1/2 (pizza)"},
]
MAWPS = [
    {"id": 1, "question": " 56 books on 9 shelves? ", "equations": ["56*9=x"], "solutions": [504.0]},
    {"id": 2, "question": "41 and 57 trees?", "equations": ["X = 41 + 57"], "solutions": ["98"]},
    {"id": 3, "question": "Two numbers?", "equations": ["x+y=3"], "solutions": [1, 2]},
]


def write(folder: Path, name: str, rows: list[Row], text: str | None = None) -> Path:
    path = folder / f"{name}.jsonl.gz"
    path.parent.mkdir(parents=True, exist_ok=True)
    with gzip.open(path, "wt", encoding="utf-8") as file:
        file.write(text if text is not None else "".join(json.dumps(row) + "\n" for row in rows))
    return path


def write_math(folder: Path) -> None:
    """The three benchmarks of math: six questions of SVAMP, two of ASDiv and two of MAWPS that are kept."""
    write(folder, "svamp/svamp", [{**SVAMP, "id": str(n), "answer": float(n)} for n in range(6)])
    write(folder, "asdiv/asdiv", ASDIV)
    write(folder, "mawps/mawps_full", MAWPS)
