"""`toolformer tune-policy`: when a trained model best starts its calls, chosen on one draw of each benchmark, measured on another.

Every example is decoded once, traced; what each policy comes to is read off.
"""

import datetime
import json
import logging
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace

import pandas

from toolformer.decoding.decoder import Decoder
from toolformer.decoding.recording import AnswerFile
from toolformer.decoding.settings import POLICIES, with_policy
from toolformer.decoding.trace import Tracer
from toolformer.errors import UserError
from toolformer.evaluation import suite
from toolformer.evaluation.policy_curve import Example, Point, choose, corrected, point, points, values
from toolformer.lm.language_model import LanguageModel
from toolformer.reporting.table import Cell, Column, Content, Table
from toolformer.results import Folder, Results, Run
from toolformer.stages import instantiate
from toolformer.stages.config import Config
from toolformer.stages.evaluate import asks
from toolformer.stages.evaluation import ANSWERS, Evaluation, prepare
from toolformer.stages.invocation import DIRECT, Invocation
from toolformer.stages.stored_policy import StoredPolicy
from toolformer.stages.versions import VERSIONS
from toolformer.step import Step

log = logging.getLogger(__name__)

DRAWS = ("development", "test")
SHARES = ("call_share", "precision", "recall", "harm_rate")
CURVES = ("score", *SHARES, "tokens")
COLUMNS = ("benchmark", "draw", "policy", "value", "n", "disabled", *CURVES, "p_value", "p_holm")


@dataclass(frozen=True)
class Tuned:
    """The chosen policy, and the result of every policy."""

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
    config: Config,
    reach: Mapping[str, float],
    invocation: Invocation = DIRECT,
    by_tool: bool = False,
) -> Tuned | None:
    """Chooses a policy within `reach` (`trace.REACH`), `by_tool` with a value for each tool, and stores it with the model.

    `evaluation.limit` is the examples of a benchmark in each draw. Benchmarks of perplexity, which call nothing, are left
    out; UserError if no other is named. None where another process chose the same while this one waited for it.
    """
    began = datetime.datetime.now(datetime.UTC)
    config = _tuned_on(config)
    results = instantiate.results(config)
    job = prepare(config, results, invocation.command)
    assert job.system.trained
    step = Step(
        "tune", VERSIONS["tune"], {"reach": dict(reach), "by_tool": by_tool}, {"evaluation": job.step}
    )
    title, about = f"policy of {job.system.trained.name}", {"benchmarks": ", ".join(job.tasks)}
    beginning = invocation.beginning(config, title, about, [job.system.trained])

    def done_meanwhile() -> Run | None:
        run = results.find(step)
        return run if run and run.ended and run.ended > began else None

    with (
        AnswerFile(results.path(job.system.step) / ANSWERS) as answers,
        results.open(step, beginning, done=done_meanwhile) as active,
    ):
        if isinstance(active, Run):
            log.info("tune-policy: run %s, started at the same time, has stored a policy", active.id[:8])
            return None
        assert active
        drawn = _draws(_traced(job, results, reach, by_tool, answers), config.seed)
        tuned = _choose(config, drawn, reach, by_tool)
        _log(active, tuned, drawn)
        _store(job, tuned, drawn, active.id)
    shown = _words(tuned.policy, tuned.value, tuned.by_tool)
    log.info("tune-policy: %s, stored with %s, run %s", shown, job.system.model, step.key()[:8])
    return tuned


def _tuned_on(config: Config) -> Config:
    """The configuration with twice the questions of the benchmarks that have any. UserError if it cannot be tuned."""
    if config.system != "toolformer" or config.engine.workers > 1 or config.engine.kind != "local":
        raise UserError(
            "tune-policy: only system=toolformer can be tuned, in one process; leave system and engine out"
        )
    names = suite.task_names(config.benchmarks, config.paths.tasks_dir)
    tasks = [task for task in names if not task.endswith("_perplexity")]
    if not tasks:
        raise UserError(
            f"benchmarks: {', '.join(names)} has no questions to answer; name others, such as [dateset]"
        )
    both = replace(config.evaluation, limit=config.evaluation.limit and 2 * config.evaluation.limit)
    # The settings' policy is not read.
    decoding = with_policy(config.decoding, "topk", 1)
    return replace(config, benchmarks=tasks, evaluation=both, decoding=decoding)


Drawn = Mapping[tuple[str, str], Sequence[Example]]
"""The examples by benchmark and draw."""


def _choose(config: Config, drawn: Drawn, reach: Mapping[str, float], by_tool: bool) -> Tuned:
    """The policy that is best on the development draws, and what every policy comes to."""
    development, test = (
        {task: list(examples) for (task, of), examples in drawn.items() if of == draw} for draw in DRAWS
    )
    pooled = [example for examples in development.values() for example in examples]
    grid = {"topk": [0.0]} | {policy: values(pooled, policy, limit) for policy, limit in reach.items()}
    tools = sorted(config.tools) if by_tool else []
    policy, value, by_tools = choose(development, grid, tools)
    curves: dict[tuple[str, str, str], list[Point]] = {}
    for draw, examples in zip(DRAWS, (development, test), strict=True):
        for each, several in grid.items():
            for one in several:
                for task, found in points(examples, each, one).items():
                    curves.setdefault((task, draw, each), []).append(found)
    choices = {task: choose({task: examples}, grid, tools) for task, examples in development.items()}
    alone = corrected({task: point(test[task], *choice) for task, choice in choices.items()})
    return Tuned(policy, value, by_tools, curves, points(test, policy, value, by_tools), alone)


def _log(active: Folder, tuned: Tuned, drawn: Drawn) -> None:
    """Logs what every policy comes to: the test draws as curves over its values, all of it as a table."""
    for (task, draw, policy), curve in tuned.curves.items():
        for step, one in enumerate(curve if draw == DRAWS[1] else ()):
            shown = {name: one.figures[name] for name in CURVES if name in one.figures}
            metrics = {f"{task}/curve/{policy}/{name}": value for name, value in shown.items()}
            active.metrics({f"curve/{policy}": one.value, **metrics}, step)
    for task, found in tuned.chosen.items():
        active.metrics({f"{task}/{name}": figure for name, figure in _figures(found).items()})
    active.note(policy=tuned.policy, value=tuned.value, by_tool=dict(tuned.by_tool))
    rows = [
        {"benchmark": task, "draw": draw, **vars(one), **_figures(one)}
        for (task, draw, _), curve in tuned.curves.items()
        for one in curve
    ]
    active.text("curves.csv", pandas.DataFrame(rows, columns=COLUMNS).to_csv(index=False))
    for draw in DRAWS:
        active.text(f"{draw}.json", json.dumps(_ids(drawn, draw), indent=1))  # as evaluation.samples takes it


def _ids(drawn: Drawn, draw: str) -> dict[str, list[str]]:
    return {
        task: sorted({example.id for example in examples})
        for (task, of), examples in drawn.items()
        if of == draw
    }


def _store(job: Evaluation, tuned: Tuned, drawn: Drawn, run_id: str) -> None:
    development = _ids(drawn, DRAWS[0])
    value = int(tuned.value) if tuned.policy == "topk" else tuned.value
    StoredPolicy(tuned.policy, value, run_id, development, dict(tuned.by_tool)).store(job.system.model)


def _traced(
    job: Evaluation, results: Results, reach: Mapping[str, float], by_tool: bool, answers: AnswerFile
) -> Iterator[tuple[str, str, Example]]:
    """Every traced example, with its benchmark and its prompt."""
    config = job.config
    asked = asks(job, results.path(job.system.step), results.path(job.step), job.tasks, job.samples)
    loaded = asked.load()
    tools = instantiate.tools(config, inference=True)
    language_model = LanguageModel.from_pretrained(job.system.model, config.lm.dtype, config.lm.device)
    decoder = Decoder(language_model, tools, **asdict(config.decoding))
    tracer = Tracer(decoder, reach, by_tool)
    lm = asked.lm(decoder, answers)
    lm.switched_off = loaded.switched_off
    suite.requests(loaded)
    for task in job.tasks:
        questions = loaded.tasks["tasks"][task].instances
        traces = [(trace, trace.completions) for trace in lm.traces(questions, tracer)]
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
