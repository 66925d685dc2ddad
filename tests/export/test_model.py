"""A model's folder with its card."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from huggingface_hub import ModelCard
from transformers import AutoModelForCausalLM

from tests.build import Capture
from tests.export.build import train
from toolformer.cli import main
from toolformer.errors import UserError
from toolformer.export import export_dataset, export_model
from toolformer.results import Results, Run


@pytest.fixture
def exported(results: Results, training: Run, tmp_path: Path) -> Path:
    export_model(results, training, tmp_path / "out")
    return tmp_path / "out"


def test_the_folder_has_known_files_alone(results: Results, training: Run, tmp_path: Path) -> None:
    for name in ("pytorch_model.bin", "modeling_evil.py", "optimizer.pt"):
        (training.folder / "model" / name).write_bytes(b"evil")
    (training.folder / "model" / "notes.json").write_text('{"wandb": "key"}')
    export_model(results, training, tmp_path / "out")
    assert AutoModelForCausalLM.from_pretrained(tmp_path / "out").config.n_layer == 2
    names = {path.name for path in (tmp_path / "out").iterdir()}
    expected = {"README.md", "config.json", "generation_config.json", "model.safetensors"}
    assert names == expected | {"tokenizer.json", "tokenizer_config.json"}


def test_the_same_export_again_is_a_no_op(
    exported: Path, results: Results, training: Run, tmp_path: Path
) -> None:
    before = {path: path.stat().st_mtime_ns for path in exported.iterdir()}
    export_model(results, training, exported)
    assert {path: path.stat().st_mtime_ns for path in exported.iterdir()} == before
    (exported / "config.json").write_text("{}")
    with pytest.raises(UserError, match="exists and is not an empty folder"):
        export_model(results, training, exported)


def test_another_export_is_refused_in_a_finished_folder(
    exported: Path, results: Results, annotation: Run
) -> None:
    with pytest.raises(UserError, match="exists and is not an empty folder"):
        export_dataset(results, annotation, exported)


KILLED = """
import os, sys
from pathlib import Path
from toolformer.export.folders import export_folder
from toolformer.results import Results
(run,) = Results(Path(sys.argv[1])).runs("train")
with export_folder(Path(sys.argv[2]), run) as made:
    (made / "weights").write_bytes(b"half")
    os.kill(os.getpid(), 9)
"""


def test_a_killed_export_leaves_nothing_beside_it(results: Results, training: Run, tmp_path: Path) -> None:
    before = sorted(tmp_path.iterdir())
    killed = subprocess.run([sys.executable, "-c", KILLED, results.root, tmp_path / "out"])
    assert killed.returncode == -9
    assert sorted(tmp_path.iterdir()) == sorted([*before, tmp_path / "out"])
    assert [path.name for path in (tmp_path / "out").iterdir()] == [".unfinished"]
    export_model(results, training, tmp_path / "out")
    assert not (tmp_path / "out" / ".unfinished").exists() and (tmp_path / "out" / "README.md").is_file()


def test_settings_of_a_model_name_no_folder(results: Results, training: Run, tmp_path: Path) -> None:
    path = training.folder / "model" / "config.json"
    named = {"_name_or_path": "/home/me/model"}
    path.write_text(json.dumps(json.loads(path.read_text()) | named | {"text_config": {"n": 1, **named}}))
    export_model(results, training, tmp_path / "out")
    exported = json.loads((tmp_path / "out" / "config.json").read_text())
    assert exported["model_type"] == "gpt2" and "_name_or_path" not in exported
    assert exported["text_config"] == {"n": 1}


def test_the_card_has_lineage_results_and_policy(exported: Path, training: Run, annotation: Run) -> None:
    card = (exported / "README.md").read_text(encoding="utf-8")
    head = ModelCard(card).data
    assert head.license == "other" and head.tags == ["toolformer", "tool-use"]
    for part in (training.id, annotation.id, "12 calls kept", "τ\\_f 0.5", "21.50", "SVAMP", "k most likely"):
        assert part in card, part
    assert "research" in card and "| train | seed | 0 |" in card


def test_the_command_prints_the_folder(
    results: Results, training: Run, tmp_path: Path, capsys: Capture
) -> None:
    folder = str(tmp_path / "out")
    assert main(["export", "model", training.id[:8], folder, f"paths.root={results.root}"]) == 0
    assert capsys.readouterr().out == f"{folder}\n"


def test_latest_is_the_training_on_texts_with_calls(
    results: Results, training: Run, tiny_folder: Path, tmp_path: Path
) -> None:
    plain = train(results, tiny_folder, data="plain")
    for words, run in (([], training), (["data=plain"], plain)):
        folder = tmp_path / f"out{len(words)}"
        assert main(["export", "model", "latest", str(folder), f"paths.root={results.root}", *words]) == 0
        assert run.id in (folder / "README.md").read_text(encoding="utf-8")


def test_a_model_without_safetensors_is_refused(results: Results, training: Run, tmp_path: Path) -> None:
    (training.folder / "model" / "model.safetensors").unlink()
    with pytest.raises(UserError, match="no safetensors"):
        export_model(results, training, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_damaged_weights_are_refused(results: Results, training: Run, tmp_path: Path) -> None:
    with (training.folder / "model" / "model.safetensors").open("r+b") as file:
        file.seek(-1, 2)
        file.write(b"x")
    with pytest.raises(UserError, match="is damaged"):
        export_model(results, training, tmp_path / "out")
    assert not (tmp_path / "out").exists()
