"""`experiment=evidence` in two rounds: a model that the first has taught annotates further texts, and three seeds learn from both.

    toolformer data get evidence DIR
    python scripts/rounds.py paths.data_dir=DIR [KEY=VALUE ...]

Does what is missing, as `toolformer run` does, with which it ends: the texts and the index (`scripts/evidence.py`), then all
four systems, three seeds, or those of seed=A,B, and their report.
"""

import subprocess
import sys
from pathlib import Path

from toolformer.cli import main as toolformer
from toolformer.errors import UserError
from toolformer.progress import configure
from toolformer.results import Run
from toolformer.results.provenance import command_of
from toolformer.stages import experiments
from toolformer.stages.config import compose, validate
from toolformer.stages.invocation import Invocation, run_stage
from toolformer.stages.train import model_folder

SECOND = "${paths.data_dir}/evidence/texts/2.jsonl"


def done(stage: str, *words: str) -> Run:
    words = ("experiment=evidence", *words)
    run: Run = run_stage(stage, validate(compose(stage, words)), Invocation(command_of(stage, words)))
    return run


def prepare(*words: str) -> None:
    """Makes the texts and the index of the experiment in the data folder, unless they are there."""
    data = compose("generate", ["experiment=evidence", *words]).paths.data_dir
    folder = Path(data).expanduser() if data else None
    if folder is None or (folder / "evidence" / "texts" / "2.jsonl").exists():
        return
    script = Path(__file__).with_name("evidence.py")
    if subprocess.run([sys.executable, str(script), str(folder), str(folder / "evidence")]).returncode:
        raise UserError(f"the texts of the experiment are not made in {folder}; the reason is above")


def main(*words: str) -> int:
    seeds = next((word for word in words if word.startswith("seed=")), "seed=0,1,2")
    words = tuple(word for word in words if word != seeds or "," not in word)
    prepare(*words)
    # What its last step would refuse, before hours are spent.
    experiments.check_data(experiments.plan(["experiment=evidence", *words]))
    first = done("generate", "tools=[calculator,search]", *words).id
    dates = done("generate", "tools=[calendar]", *words).id
    teacher = done("train", f"dataset={first}+{dates}", "data=augmented", *words, "name=first_round")
    unprompted = [f"model='{model_folder(teacher)}'", "prompts=none", "propose.rank=probability"]
    further = [f"corpus.path={SECOND}", "corpus.limit=820", "tools=[calculator,search]"]
    second = done("generate", *further, *words, *unprompted).id
    dates = done("generate", "tools=[calendar]", *words, *unprompted).id
    both = ["experiment=evidence", f"dataset={first}+{second}+{dates}", "trainer.max_steps=200"]
    return toolformer(["run", *(["-m", seeds] if "," in seeds else []), *both, *words])


if __name__ == "__main__":
    if len(sys.argv) < 2 or sys.argv[1].startswith("-"):
        print("python scripts/rounds.py paths.data_dir=DIR [KEY=VALUE ...]", file=sys.stderr)
        sys.exit(2)
    try:
        configure()
        sys.exit(main(*sys.argv[1:]))
    except UserError as error:
        print(f"rounds: {error}", file=sys.stderr)
        sys.exit(2)
    except KeyboardInterrupt:
        sys.exit("rounds: interrupted; run the same command again to resume")
