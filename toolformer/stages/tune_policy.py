"""`toolformer tune-policy`: when a trained model best starts its calls, chosen on one draw of each benchmark, measured on another.

Every example is decoded once, traced; what each policy comes to is read off.
"""

import datetime
import json
import logging
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import pandas

from toolformer.decoding.recording import AnswerFile
from toolformer.decoding.settings import POLICIES, store_policy, under
from toolformer.decoding.trace import TracingDecoder
from toolformer.errors import UserError
from toolformer.evaluation import suite
from toolformer.evaluation.policy_curve import Example, Point, choose, corrected, point, points, values
from toolformer.lm.language_model import LanguageModel
from toolformer.reporting.table import Cell, Column, Content, Table
from toolformer.stages import instantiate
from toolformer.stages.config import Config, fingerprint
from toolformer.stages.evaluate import ANSWERS, Job, asks, model_folder, prepare
from toolformer.tracking import ActiveRun
from toolformer.results.provenance import describe

log = logging.getLogger(__name__)

DRAWS = ("development", "test")
SHARES = ("call_share", "precision", "recall", "harm_rate")
CURVES = ("score", *SHARES, "tokens")
COLUMNS = ("benchmark", "draw", "policy", "value", "n", "disabled", *CURVES, "p_value", "p_holm")


@dataclass(frozen=True)
class Tuned:
    """The chosen policy, and what every policy came to."""

    run_id: str
    policy: str
    value: float
    by_tool: Mapping[str, float]
    """The values of tools that have their own."""
    curves: Mapping[tuple[str, str, str], Sequence[Point]]
    """By benchmark, draw and policy, each of its values."""
    chosen: Mapping[str, Point]
    """The chosen policy on the test draw of each benchmark."""
    alone: Mapping[str, Point]
    """The same of the policy that each benchmark's development draw chooses for itself alone."""


def tune_policy(
    config: Config, reach: Mapping[str, float], command: str = "", by_tool: bool = False
) -> Tuned | None:
    """Chooses a policy within `reach` (`trace.REACH`), `by_tool` with a value for each tool, and stores it with the model.

    `evaluation.limit` is the examples of a benchmark in each draw. Benchmarks of perplexity, which call nothing, are left
    out; UserError if no other is named. None where another process chose the same while this one waited for it.
    """
    began = datetime.datetime.now(datetime.UTC)
    if config.system != "toolformer" or config.engine.workers > 1 or config.engine.kind != "local":
        raise UserError("tune-policy: it takes system=toolformer in one process; leave system and engine out")
    names = suite.task_names(config.benchmarks, config.paths.tasks_dir)
    tasks = [task for task in names if not task.endswith("_perplexity")]
    if not tasks:
        raise UserError(f"benchmarks: {', '.join(names)} asks for no answers; name others, such as [dateset]")
    both = replace(config.evaluation, limit=config.evaluation.limit and 2 * config.evaluation.limit)
    # Of the settings' own policy nothing is read.
    config = replace(config, benchmarks=tasks, evaluation=both, decoding=under(config.decoding, "topk", 1))
    tracker = instantiate.tracker(config)
    job = prepare(config, tracker, command)
    assert job.trained
    key = fingerprint("tune", job.fingerprint, reach, by_tool)
    model = model_folder(tracker, job.trained)
    with AnswerFile(job.folder / ANSWERS) as answers:
        done = tracker.latest("tune", fingerprint=key) if answers.waited else None
        if done and done.ended and done.ended > began:
            log.info(
                "tune-policy: run %s, given at the same time, has chosen and stored a policy", done.run_id[:8]
            )
            return None
        with tracker.run(
            stage="tune", name=f"policy of {job.trained.name}", fingerprint=key, config=asdict(config),
            tags={"experiment": config.name, "lineage.train_run_id": job.trained.run_id},
            description=describe(command, {"benchmarks": ", ".join(tasks)}, [job.trained]),
        ) as active:  # fmt: skip
            chosen = _choose(config, job, model, reach, by_tool, answers, active)
    shown = _words(chosen.policy, chosen.value, chosen.by_tool)
    log.info("tune-policy: %s, stored with %s, run %s", shown, model, active.run_id[:8])
    return chosen


def _choose(
    config: Config,
    job: Job,
    model: Path,
    reach: Mapping[str, float],
    by_tool: bool,
    answers: AnswerFile,
    active: ActiveRun,
) -> Tuned:
    """Chooses a policy, logs what every policy came to, and stores the chosen one with the model."""
    tasks = job.tasks
    drawn = _draws(_traced(config, job, model, reach, by_tool, answers), config.seed)
    development, test = ({task: drawn[task, draw] for task in tasks} for draw in DRAWS)
    pooled = [example for examples in development.values() for example in examples]
    grid = {"topk": [0.0]} | {policy: values(pooled, policy, limit) for policy, limit in reach.items()}
    tools = sorted(config.tools) if by_tool else []
    policy, value, own = choose(development, grid, tools)
    curves: dict[tuple[str, str, str], list[Point]] = {}
    for draw, of_draw in zip(DRAWS, (development, test), strict=True):
        for each, several in grid.items():
            for step, one in enumerate(several):
                metrics = {f"curve/{each}": one}
                for task, found in points(of_draw, each, one).items():
                    curves.setdefault((task, draw, each), []).append(found)
                    shown = [name for name in CURVES if name in found.figures]
                    metrics |= {f"{task}/curve/{each}/{name}": found.figures[name] for name in shown}
                if draw == DRAWS[1]:
                    active.metrics(metrics, step)
    chosen = points(test, policy, value, own)
    choices = {task: choose({task: examples}, grid, tools) for task, examples in development.items()}
    alone = corrected({task: point(test[task], *choice) for task, choice in choices.items()})
    for task, found in chosen.items():
        active.metrics({f"{task}/{name}": figure for name, figure in _figures(found).items()})
    active.tags({"policy": policy, "policy.value": value})
    if by_tool:
        active.tags({"policy.by_tool": json.dumps(own)})
    rows = [
        {"benchmark": task, "draw": draw, **vars(one), **_figures(one)}
        for (task, draw, _), of_policy in curves.items()
        for one in of_policy
    ]
    active.text("curves.csv", pandas.DataFrame(rows, columns=COLUMNS).to_csv(index=False))
    for draw in DRAWS:
        ids = {task: sorted({example.id for example in drawn[task, draw]}) for task in tasks}
        active.text(f"{draw}.json", json.dumps(ids, indent=1))  # as evaluation.samples takes it
    ids = {task: sorted({example.id for example in examples}) for task, examples in development.items()}
    store_policy(model, policy, value, active.run_id, ids, own)
    return Tuned(active.run_id, policy, value, own, curves, chosen, alone)


def _traced(
    config: Config, job: Job, model: Path, reach: Mapping[str, float], by_tool: bool, answers: AnswerFile
) -> Iterator[tuple[str, str, Example]]:
    """Every example of the benchmarks, traced, behind its benchmark and its prompt."""
    asked = asks(config, job, model, job.identity.evaluation, job.tasks, job.identity.questions["samples"])
    loaded = asked.load()
    tools = instantiate.tools(config, inference=True)
    language_model = LanguageModel.from_pretrained(model, config.lm.dtype, config.lm.device)
    settings = asdict(config.decoding) | {"reach": reach, "of_each_tool": by_tool}
    decoder = TracingDecoder(language_model, tools, **settings)
    lm = asked.lm(decoder, answers)
    lm.switched_off = loaded.switched_off
    suite.requests(loaded)
    for task in job.tasks:
        questions = loaded.tasks["tasks"][task].instances
        traces = [(trace, trace.completions) for trace in lm.traces(questions)]
        # Scored in rounds: the completions without a call, then the first with one of each, and so on.
        rounds = [
            suite.scores(loaded, task, [each[min(turn, len(each) - 1)].plain for _, each in traces])
            for turn in range(max(len(each) for _, each in traces))
        ]
        for n, (trace, each) in enumerate(traces):
            scores = [rounds[turn][n] for turn in range(len(each))]
            question = questions[n]
            yield task, question.args[0], Example(str(question.doc["id"]), trace, scores)


def _draws(examples: Iterator[tuple[str, str, Example]], seed: int) -> dict[tuple[str, str], list[Example]]:
    """The examples of each benchmark halved at random, by benchmark and draw.

    Examples of one prompt, which Dateset asks on several days, are in one half: most of their decoding is the same.
    """
    by_task: dict[str, dict[str, list[Example]]] = {}
    for task, prompt, example in examples:
        by_task.setdefault(task, {}).setdefault(prompt, []).append(example)
    drawn: dict[tuple[str, str], list[Example]] = {}
    for task, by_prompt in by_task.items():
        prompts = sorted(by_prompt)
        random.Random(f"{seed}/tune-policy/{task}").shuffle(prompts)
        half = sum(map(len, by_prompt.values())) // 2
        drawn |= {(task, draw): [] for draw in DRAWS}
        for prompt in prompts:
            first = len(drawn[task, DRAWS[0]]) + len(by_prompt[prompt]) <= half
            drawn[task, DRAWS[0] if first else DRAWS[1]] += by_prompt[prompt]
        if not all(drawn[task, draw] for draw in DRAWS):
            raise UserError(f"benchmarks: {task} has too few prompts for two draws; raise evaluation.limit")
    return drawn


def _figures(point: Point) -> dict[str, float]:
    return point.figures | {"p_value": point.p_value, "p_holm": point.p_holm}


def _words(policy: str, value: float, by_tool: Mapping[str, float]) -> str:
    own = ",".join(f"{tool}:{each:g}" for tool, each in by_tool.items())
    return f"decoding.policy={policy} decoding.{POLICIES[policy]}={value:g}" + (
        f" decoding.by_tool={{{own}}}" if own else ""
    )


def content(tuned: Tuned) -> Content:
    """For the terminal: on each test draw no calls, top-k at its ends, the chosen policy, and the benchmark's own."""
    caption = (
        f"Test draws; chosen on the development draws: {_words(tuned.policy, tuned.value, tuned.by_tool)}, and last the policy that the "
        "benchmark's development draw chooses for itself alone, which is not stored. Of the calls, precision is the share "
        "that helps and harm the share that harms; recall is the share of the examples that a call helps which it helps. "
        "Tokens: written an example; p: McNemar against no calls, corrected for the benchmarks beside it (Holm)"
    )
    heads = "benchmark policy n correct calls precision recall harm tokens p Holm".split()
    columns = [Column(head, numeric=index > 1) for index, head in enumerate(heads)]
    rows: list[list[Cell]] = []
    for task, best in tuned.chosen.items():
        points = tuned.curves[task, DRAWS[1], "topk"]
        ends = {one.value: one for one in points if one.value in (0, 1, points[-1].value)}
        own = tuned.alone[task]
        named = [*((one, f"k = {k:g}") for k, one in ends.items()), (best, "tuned")]
        further = "".join(f", {tool} {each:.3g}" for tool, each in own.by_tool.items())
        for one, name in [*named, (own, f"{POLICIES[own.policy]} = {own.value:.3g}{further}")]:
            figures = _figures(one)
            shares = [f"{100 * figures[name]:.1f}" if name in figures else "" for name in SHARES]
            tests = (f"{figures[name]:.3f}" for name in ("p_value", "p_holm"))
            cells = (task, name, str(one.n), f"{one.score:.1f}", *shares, f"{one.tokens:.1f}", *tests)
            rows.append([*map(Cell, cells)])
    return Content("", [Table("", "", "When a call starts", columns, rows, caption)])
