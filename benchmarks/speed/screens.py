"""What `screen` saves and what it misses, against an annotation that scores every call.

    python -m benchmarks.speed.screens screen.result_ahead=12 tools=[calculator] corpus.limit=200 [KEY=VALUE ...]

The words are those of `toolformer generate`. Prints one JSON object on the last line: the calls kept at τ_f without and
with the screen, the share of the former that the latter keeps, kept calls a CPU minute with the screen over those without,
and the largest difference in nats between the gains of calls that both kept.
"""

import sys
import time

from benchmarks.speed.script import show
from toolformer.annotation.candidates import lowest_thresholds
from toolformer.annotation.merge import keep
from toolformer.annotation.pipeline import Annotator
from toolformer.annotation.screen import Screen
from toolformer.errors import UserError
from toolformer.lm.text_generator import load
from toolformer.progress import Bar
from toolformer.stages import instantiate
from toolformer.stages.config import compose, validate

Kept = dict[tuple[str, str, int], float]
"""Gains by document, tool and position."""


def main(words: list[str]) -> None:
    config = validate(compose("generate", words))
    instantiate.apply_paths(config)
    settings = [instantiate.tool_settings(config, key) for key in config.tools]
    documents = list(instantiate.Corpus(config.corpus))
    model, tools = load(config.model, config.lm.dtype, config.lm.device), instantiate.tools(config)
    thresholds = {of_tool.key: of_tool.filter_threshold for of_tool in settings}

    def annotated(rules: Screen) -> tuple[Kept, float]:
        """The kept calls, and how many there are a CPU minute."""
        annotator = Annotator(
            model, settings, tools, config.seed, lowest=lowest_thresholds(settings), rules=rules
        )
        kept: Kept = {}
        started, size = time.process_time(), config.generate.shard_size
        for first in Bar(range(0, len(documents), size), unit="shard"):
            rows = annotator.annotate(documents[first : first + size]).rows
            for doc_id, calls in keep(rows, thresholds).items():
                kept |= {(doc_id, call.tool, call.position): call.gain for call in calls}
        return kept, 60 * len(kept) / (time.process_time() - started)

    (every, rate), (screened, screened_rate) = annotated(Screen()), annotated(config.screen)
    both = every.keys() & screened.keys()
    figures = {
        "kept": len(every),
        "kept_with_screen": len(screened),
        "kept_share": round(len(both) / len(every), 4) if every else None,
        "kept_per_cpu_minute_ratio": round(screened_rate / rate, 2) if every else None,
        "largest_gain_difference": max((abs(every[key] - screened[key]) for key in both), default=None),
    }
    show(f"{len(documents)} documents", {}, figures)


if __name__ == "__main__":
    try:
        main(sys.argv[1:])
    except UserError as error:
        print(f"benchmarks.speed.screens: {error}", file=sys.stderr)
        sys.exit(2)
