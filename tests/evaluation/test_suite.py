"""Tasks run through lm-eval: prompts as the paper words them, scores, samples, intervals."""

import json
import math
import shutil
from pathlib import Path

import pytest
from lm_eval.api.instance import Instance

from tests.build import Log, Parrot, task_config, write, write_math
from tests.pages.page import Page
from toolformer.benchmarks import GROUPS, TASKS
from toolformer.benchmarks.declared import data_files
from toolformer.decoding.lm_eval_model import generation_limits
from toolformer.errors import UserError
from toolformer.evaluation import suite
from toolformer.statistics.intervals import score_interval

WIKI = " \n = Du Fu = \n \n A poet @-@ king , dead . \n"


@pytest.fixture
def data_dir(tmp_path: Path) -> Path:
    write_math(tmp_path)
    write(tmp_path, "wikitext2/test_raw", [{"text": WIKI}])
    return tmp_path


def test_a_wording_changes_the_prompts_alone(data_dir: Path) -> None:
    names = ["arithmetic", "dateset", "svamp", "wikitext_perplexity"]

    def asked(**more: str) -> dict[tuple[str, str], Instance]:
        loaded = suite.load_tasks(names, {"data_dir": str(data_dir), "subset": 4, **more})
        found = suite.requests(loaded).values()
        return {(one.task_name or "", str(one.doc["id"])): one for several in found for one in several}

    plain, paper, other = asked(), asked(wording="paper"), asked(wording="b")
    assert [one.args for one in plain.values()] == [one.args for one in paper.values()]
    assert plain.keys() == other.keys()
    for (name, _), one in other.items():
        before = plain[name, _].args
        assert (one.args == before) == (name == "wikitext_perplexity") and one.args[1:] == before[1:]
    solved = {one.args[0] for (name, _), one in other.items() if name == "svamp"}
    assert solved == {"Solve this problem. Each pack costs 76 dollars. How much? Solution:"}


def test_a_right_model_is_right(data_dir: Path) -> None:
    lm = Parrot(
        lambda doc: f" It is {doc['answers'][-1]}." if "answers" in doc else f" 1 + 1 = {doc['answer']}"
    )
    found = suite.evaluate_tasks(lm, ["dateset", "math"], {"data_dir": str(data_dir), "subset": 30})
    n = {name: (result.interval.value, result.interval.n) for name, result in found.items()}
    assert n == {"dateset": (100.0, 30), "asdiv": (100.0, 2), "svamp": (100.0, 6), "mawps": (100.0, 2)}


def test_scores_samples_and_interval_belong_together(data_dir: Path) -> None:
    lm = Parrot(lambda doc: f" {doc['answer']}" if int(doc["id"]) % 3 == 0 else " unknown")
    result = suite.evaluate_tasks(lm, ["svamp"], {"data_dir": str(data_dir)})["svamp"]
    assert [sample["score"] for sample in result.samples] == [100.0, 0.0, 0.0, 100.0, 0.0, 0.0]
    assert result.interval == score_interval([{str(n): (100.0 * (n % 3 == 0), 1.0) for n in range(6)}])
    assert [sample["doc_id"] for sample in result.samples] == list(range(6))
    assert result.samples[3]["prediction"] == " 3.0" and result.samples[3]["target"] == ["3.0"]
    json.dumps(result.samples)
    few = suite.evaluate_tasks(lm, ["svamp"], {"data_dir": str(data_dir)}, limit=2)["svamp"]
    some = suite.evaluate_tasks(lm, ["svamp"], {"data_dir": str(data_dir)}, ids=["4", "1"])["svamp"]
    assert [[sample["id"] for sample in each.samples] for each in (few, some)] == [["0", "1"], ["1", "4"]]


def test_perplexity_by_words_where_tokens_are_unknown(data_dir: Path, tmp_path: Path) -> None:
    texts = tmp_path / "held.jsonl"
    texts.write_text('{"text": "two words"}\n{"text": "three little words"}\n')
    metadata = {"data_dir": str(data_dir), "heldout_path": str(texts)}
    found = suite.evaluate_tasks(Parrot(str), ["perplexity"], metadata)
    held = found["heldout_perplexity"]
    assert held.is_perplexity and set(held.perplexities) == {"word_perplexity"}
    assert held.interval.value == pytest.approx(math.exp(2 * (9 + 18) / 5))
    assert [sample["log_likelihood"] for sample in held.samples] == [-18.0, -36.0]
    (wiki,) = found["wikitext_perplexity"].samples
    assert (wiki["words"], wiki["bytes"]) == (13, len(WIKI)), "counted as published, read as prose"
    assert wiki["log_likelihood"] == -2.0 * len("\n= Du Fu =\n\nA poet-king, dead.\n")


def test_tools_that_a_task_may_not_use(data_dir: Path) -> None:
    """Section 4.2 of the paper; perplexity is scored, and so never meets a tool."""
    off = {name: suite.switched_off(task_config(name).get("metadata"), name) for name in TASKS}
    expected = dict.fromkeys(GROUPS["lama"], {"search"}) | dict.fromkeys(GROUPS["qa"], {"qa"})
    assert {name: tools for name, tools in off.items() if tools} == expected
    write(data_dir, "nq_open/dev", [{"id": "1", "question": "Who?", "answers": ["Ada"]}])
    lm = Parrot(lambda doc: " 1")
    lm.switched_off = {}
    suite.evaluate_tasks(lm, ["nq", "svamp"], {"data_dir": str(data_dir)})
    assert lm.switched_off == {"nq": {"qa"}, "svamp": frozenset()}


def test_names_ids_and_files_that_are_none(data_dir: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="has no nq; .*; files of webqs are missing too"):
        suite.check_data(["nq", "dateset", "webqs"], str(tmp_path))
    with pytest.raises(UserError, match="no task or group 'svmap' .did you mean svamp"):
        suite.task_names(["svmap"])
    with pytest.raises(UserError, match="no task or group 'nosuch'; known: lama, math, .*svamp"):
        suite.task_names(["nosuch"])
    with pytest.raises(UserError, match="the list is empty"):
        suite.task_names([])
    assert suite.task_names(["svamp", "math", "svamp"]) == ["svamp", "asdiv", "mawps"]
    by_task = {"svamp": ["5"], "asdiv": ["nluds-0001"]}
    with pytest.raises(
        UserError, match="samples: the ids are for svamp, asdiv, but the benchmarks are svamp"
    ):
        suite.load_tasks(["svamp"], {"data_dir": str(data_dir)}, by_task)
    with pytest.raises(UserError, match="svamp has no document 'x'; its 6 ids are like 0, 1, 2"):
        suite.load_tasks(["svamp"], {"data_dir": str(data_dir)}, ["x"])
    with pytest.raises(UserError, match="samples: none of svamp has a document 'x'"):
        suite.load_tasks(["svamp"], {"data_dir": str(data_dir)}, ["0", "x"])


@pytest.mark.parametrize("name", ["svamp", "wikitext_perplexity", "mlqa_all_en_es", "xquad_en", "xquad_es"])
def test_missing_data_is_named_before_anything_is_read(name: str, tmp_path: Path) -> None:
    """The check of all benchmarks at once knows every file that a loader reads, and no other."""
    for names in data_files(name):
        with pytest.raises(UserError, match="expected the file") as checked:
            suite.check_data([name], str(tmp_path))
        with pytest.raises(UserError) as read:
            suite.load_tasks([name], {"data_dir": str(tmp_path)})
        assert str(checked.value) == str(read.value) or len(data_files(name)) > 1
        (tmp_path / names[-1]).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / names[-1]).write_text("")
    suite.check_data([name, "dateset", "heldout_perplexity"], str(tmp_path))
    suite.check_data([name], None)  # the hub
    with pytest.raises(UserError, match="^(?!.*expected the file)"):
        suite.load_tasks([name], {"data_dir": str(tmp_path)})


@pytest.fixture
def tasks(tmp_path: Path) -> Path:
    Page("extending").write_files(tmp_path)
    return tmp_path / "tasks"


def test_a_users_tasks_stand_beside_the_projects(tasks: Path) -> None:
    assert suite.task_names(["moons_quiz", "temporal"], tasks) == ["moons_quiz", "templama", "dateset"]
    loaded = suite.load_tasks(["moons_quiz"], {"subset": 1, "seed": 0}, tasks_dir=tasks)
    assert len(loaded.tasks["tasks"]["moons_quiz"].dataset["test"]) == 1
    file = tasks / "moons.yaml"
    assert suite.load_tasks(["moons_quiz"], tasks_dir=tasks).switched_off == {"moons_quiz": {"search"}}
    (tasks / "shared").write_text("metadata: {version: 1.0, switched_off: [qa, abacus]}\n")
    others = [line for line in file.read_text().splitlines(True) if "metadata" not in line]
    file.write_text("include: shared\n" + "".join(others))
    assert suite.load_tasks(["moons_quiz"], tasks_dir=tasks).switched_off == {"moons_quiz": {"qa", "abacus"}}


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("task: moons_quiz", "task: svamp", ": a task named svamp already exists; rename this one"),
        ("task: moons_quiz", "task: no", r"moons.yaml: task: no is read as bool, not as text; put it in quotes: task: 'no'"),
        ("test_split: test", "test_split: 0123", "put it in quotes: test_split: '0123'"),
        ("test_split: test", "test_split: 12:30", "put it in quotes: test_split: '12:30'"),
        ("task: moons_quiz\n", "group: none\n", "holds no task file"),
        ("generate_until", "loglikelihood_rolling", "output_type is loglikelihood_rolling; it must be generate_until"),
        ("quiz.rows", "nonesuch.rows", "moons.yaml cannot be loaded: ImportError"),
        ("process_results: !function toolformer.benchmarks.tasks.answer_in_5_words\n", "", "process_results and a metric_list"),
        ("answer_in_5_words", "perplexity_results", r"row '\d' returns no number `score` \((TypeError|KeyError)"),
        ("toolformer.benchmarks.tasks.answer_in_5_words", "quiz.whole", "gives 1 to a right answer; scores are from 0 to 100"),
        ("task: moons_quiz", "task: [moons_quiz", "moons.yaml cannot be read: while parsing"),
        ("switched_off: [search]", "switched_off: search",
         r"moons.yaml: metadata.switched_off is 'search'; it must be a list of tools by key"),
        ("metric: score", "metric: exact_match", "a metric_list with `score` alone"),
        ('"id": str(number), ', "", "moons.yaml: the rows have no field `id`"),
        ('"id": str(number)', '"id": "same"', "moons.yaml: several rows have the id 'same'"),
        ('"answers": answers', '"answers": [answers]', r"the row '0': field `answers` is \[\['2', 'two'\]\]; it must be a text, a"),
        ('"answers": answers', '"answers": answers if number == 0 else []', r"the row '1': field `answers` is \[\]; it must be"),
        ('"answers": answers', '"answers": [" "]', r"the row '0': field `answers` is \[' '\]"),
        ('"answers": answers', '"right": answers', "the row '0': field `answers` is None"),
        ('"answers": answers', '"answers": float("nan")', "the row '0': field `answers` is nan; it must be a text, a number"),
        ('"answers": answers', '"answers": "[1, 2]"', r"the row '0': field `answers` is a list written as a text, '\[1, 2\]'; give the"),
        ('"answers": answers', '"answers": str({"text": answers})', "field `answers` is a list written as a text"),
        ('"answers": answers', '"answers": "\U0001f315"', "gives 0 to every right answer of 2 of 2 rows; an answer may be longer"),
        ('"answers": answers', '"answers": "a b c d e f g"', "gives 0 to every right answer of 2 of 2 rows"),
        ("answer_in_5_words", "math_score", "the row '0': the problem has 2 answers; it must have one number"),
        ('"answers": answers', '"answers": answers, "current_date": "04/03/2021"', "the row '0': field `current_date` is '04/03/2021'"),
        ('"answers": answers', '"answers": answers, "current_date": "2021-13-01"', "it must be YYYY-MM-DD; fix the row"),
        ('"question": question', '"question": question if number == 0 else None', "doc_to_text on the row '1' gives no prompt: Attr"),
        ("until: []", "until: [5]", r"moons.yaml: generation_kwargs .*: until is \[5\]; it must be a list of texts"),
        ("until: []", "until: {a: b}", "moons.yaml: generation_kwargs .*: until is {'a': 'b'}"),
        ("until: []", "until: 0", "moons.yaml: generation_kwargs .*: until is 0; it must be a list of texts"),
        ("until: []", "until: false", "moons.yaml: generation_kwargs .*: until is False"),
        ("max_gen_toks: 24", "max_gen_toks: 0", "max_gen_toks is 0; it must be a whole number of at least 1"),
        ("max_gen_toks: 24", "max_new_tokens: 0", "max_gen_toks is 0; it must be a whole number of at least 1"),
        ("max_gen_toks: 24", "max_gen_toks: -1", "max_gen_toks is -1; it must be a whole number of at least 1"),
        ("do_sample: false", "top_k: 5", "top_k=5 changes nothing: decoding is greedy"),
    ],
)  # fmt: skip
def test_a_users_task_that_cannot_be_used_is_one_line(tasks: Path, old: str, new: str, message: str) -> None:
    with (tasks / "quiz.py").open("a") as code:
        code.write("\n\ndef whole(doc, results): return {'score': float(results[0] in doc['answers'])}\n")
    for file in (tasks / "moons.yaml", tasks / "quiz.py"):
        file.write_text(file.read_text().replace(old, new))
    with pytest.raises(UserError, match=message):
        suite.load_tasks(["moons_quiz"], tasks_dir=tasks)


@pytest.mark.parametrize(
    "form",
    ["answers[0]", "answers", '{"text": answers, "answer_start": [0]}', '[{"text": text} for text in answers]', "int(answers[0])",
     "[float(answers[0])]", "tuple(answers)"],
)  # fmt: skip
def test_answers_of_any_usual_form_are_read(tasks: Path, form: str) -> None:
    code = tasks / "quiz.py"
    code.write_text(code.read_text().replace('"answers": answers', f'"answers": {form}'))
    loaded = suite.load_tasks(["moons_quiz"], tasks_dir=tasks)
    lm = Parrot(lambda doc: " 2 moons" if "Mars" in doc["question"] else " 12 of them")
    result = suite.evaluate_tasks(lm, loaded)["moons_quiz"]
    assert [sample["score"] for sample in result.samples] == [100.0, 0.0]
    assert all(isinstance(text, str) for sample in result.samples for text in sample["target"])


def test_a_row_that_no_answer_can_score_on_is_counted(tasks: Path, caplog: Log) -> None:
    code = tasks / "quiz.py"
    long = '"answers": ["a b c d e f", *answers[number * 2 :]]'
    code.write_text(code.read_text().replace('"answers": answers', long))
    suite.load_tasks(["moons_quiz"], tasks_dir=tasks)
    assert "gives 0 to every right answer of 1 of 2 rows, such as that with the id 1" in caplog.text


@pytest.mark.parametrize("until", ['""', '[""]', '["", ""]', "null"])
def test_an_empty_stop_text_ends_no_answer(tasks: Path, until: str) -> None:
    file = tasks / "moons.yaml"
    file.write_text(file.read_text().replace("until: []", f"until: {until}"))
    (request, *_) = suite.requests(suite.load_tasks(["moons_quiz"], tasks_dir=tasks))["generate_until"]
    assert generation_limits("moons_quiz", request.args[1]) == (24, ())


def test_a_copy_of_the_data_is_the_same_data(tmp_path: Path) -> None:
    for name in ("data", "copy"):
        write(tmp_path / name, "svamp/svamp", [{"id": "1"}])
    shutil.copyfile(tmp_path / "data/svamp/svamp.jsonl.gz", tmp_path / "copy/svamp/svamp.jsonl.gz")
    first, copy = (suite.data_state(["svamp"], str(tmp_path / name), tmp_path) for name in ("data", "copy"))
    assert first == copy and [*first] == ["svamp/svamp.jsonl.gz"]
    write(tmp_path / "copy", "svamp/svamp", [{"id": "2"}])
    assert suite.data_state(["svamp"], str(tmp_path / "copy"), tmp_path) != first
