"""`experiment=evidence` in two rounds: a model that the first has taught annotates further texts, and three seeds learn from both.

    python scripts/evidence.py DIR DIR/evidence
    python scripts/rounds.py paths.data_dir=DIR [KEY=VALUE ...]

Does what is missing, as `toolformer run` does, with which it ends: all four systems, three seeds, or those of
seed=A,B, and their report.
"""

import sys

from toolformer.cli import main as toolformer
from toolformer.errors import UserError
from toolformer.progress import configure
from toolformer.results import Run
from toolformer.results.provenance import command_of
from toolformer.stages import experiments
from toolformer.stages.config import compose, validate
from toolformer.stages.invocation import Invocation
from toolformer.stages.launch import run_stage
from toolformer.stages.train import model_folder

SECOND = "${paths.data_dir}/evidence/texts/2.jsonl"


def done(stage: str, *words: str) -> Run:
    words = ("experiment=evidence", *words)
    run: Run = run_stage(stage, validate(compose(stage, words)), Invocation(command_of(stage, words)))
    return run


def main(*words: str) -> int:
    seeds = next((word for word in words if word.startswith("seed=")), "seed=0,1,2")
    # What its last step would refuse, before hours are spent.
    experiments.check_data(experiments.plan(["experiment=evidence", *words]))
    words = tuple(word for word in words if word != seeds or "," not in word)
    first = done("generate", "tools=[calculator,search]", *words).id
    dates = done("generate", "tools=[calendar]", *words).id
    teacher = done("train", f"dataset={first}+{dates}", "data=augmented", *words, "name=first_round")
    unprompted = [f"model='{model_folder(teacher)}'", "prompts=none", "propose.rank=probability"]
    further = [f"corpus.path={SECOND}", "corpus.limit=820", "tools=[calculator,search]"]
    second = done("generate", *further, *words, *unprompted).id
    dates = done("generate", "tools=[calendar]", *words, *unprompted).id
    both = ["experiment=evidence", f"dataset={first}+{second}+{dates}", "trainer.max_steps=200"]
    return toolformer(["run", *both, *words, *([seeds] if "," in seeds else [])])


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
