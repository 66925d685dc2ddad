"""A model's folder with its card and evaluations, and its way to a Hub that runs here."""

import base64
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import yaml
from huggingface_hub import constants, parse_eval_result_entries
from transformers import AutoModelForCausalLM

from tests.conftest import Capture, Refused, free_port
from toolformer.cli import main
from toolformer.errors import UserError
from toolformer.export import export_model
from toolformer.results import Results, Run

SECRET = "hf_s3cr3tT0kenThatNobodyMaySee"


class Hub(ThreadingHTTPServer):
    """The endpoints that a push needs; it keeps the files of the commit."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.url = f"http://127.0.0.1:{self.server_address[1]}"
        self.created: list[dict[str, Any]] = []
        self.commits: list[tuple[str, dict[str, bytes]]] = []
        """The path and query of each commit, and its files."""
        self.pull_requests: list[bool] = []
        self.tokens: set[str | None] = set()
        self.refuses = False


class _Handler(BaseHTTPRequestHandler):
    server: Hub

    def do_POST(self) -> None:
        hub, body = self.server, self.rfile.read(int(self.headers["Content-Length"]))
        hub.tokens.add(self.headers["Authorization"])
        if hub.refuses:  # a server that shows what it was given
            self._answer({"error": f"forbidden for {self.headers['Authorization']}"}, 403)
        elif self.path == "/api/repos/create":
            hub.created.append(json.loads(body))
            self._answer({"url": f"{hub.url}/me/model"})
        elif self.path == "/api/validate-yaml":
            head = yaml.safe_load(json.loads(body)["content"].split("---")[1])
            self._answer({"errors": [], "warnings": []} if head["license"] else {"errors": ["no licence"]})
        elif self.path.endswith("/discussions"):
            hub.pull_requests.append(json.loads(body)["pullRequest"])
            self._answer({"num": len(hub.pull_requests)})
        elif "/preupload/" in self.path:
            paths = [file["path"] for file in json.loads(body)["files"]]
            files = [{"path": path, "uploadMode": "regular", "shouldIgnore": False} for path in paths]
            self._answer({"files": files})
        elif "/commit/" in self.path:
            entries = [json.loads(line)["value"] for line in body.splitlines() if b'"file"' in line[:20]]
            files = {entry["path"]: base64.b64decode(entry["content"]) for entry in entries}
            hub.commits.append((self.path, files))
            self._answer({"commitUrl": f"{hub.url}/me/model/commit/{'0' * 40}", "commitOid": "0" * 40})
        else:
            self._answer({"error": "unknown"}, 404)

    def do_GET(self) -> None:
        if self.server.refuses or "/discussions/" not in self.path:
            self._answer({"error": f"no {self.headers['Authorization']}"}, 403)
            return
        repo = {"name": "me/model", "type": "model"}
        about = {
            "title": "",
            "num": 1,
            "createdAt": "2026-01-01T00:00:00.000Z",
            "status": "draft",
            "repo": repo,
        }
        changes = {"isPullRequest": True, "events": [], "changes": {"base": "main"}, "filesWithConflicts": []}
        self._answer({**about, **changes})

    def _answer(self, value: Any, status: int = 200) -> None:
        data = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    server = Hub()
    threading.Thread(target=server.serve_forever, daemon=True).start()
    monkeypatch.setenv("HF_ENDPOINT", server.url)
    monkeypatch.setenv("HF_TOKEN", SECRET)
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)  # the tests' own setting
    yield server
    server.shutdown()
    server.server_close()


def files(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.fixture
def exported(results: Results, training: Run, tmp_path: Path) -> Path:
    export_model(
        results, training, tmp_path / "out", name="me/model", command="toolformer export model latest out"
    )
    return tmp_path / "out"


def test_the_folder_is_a_model_without_pickles_or_code(
    results: Results, training: Run, tmp_path: Path
) -> None:
    for name in ("pytorch_model.bin", "modeling_evil.py", "optimizer.pt"):
        (training.folder / "model" / name).write_bytes(b"evil")
    export_model(results, training, tmp_path / "out")
    assert AutoModelForCausalLM.from_pretrained(tmp_path / "out").config.n_layer == 2
    suffixes = {path.suffix for path in (tmp_path / "out").rglob("*") if path.is_file()}
    assert suffixes == {".safetensors", ".json", ".md", ".yaml"}


def test_the_card_tells_lineage_results_and_policy(exported: Path, training: Run, annotation: Run) -> None:
    card = (exported / "README.md").read_text(encoding="utf-8")
    head = yaml.safe_load(card.split("---")[1])
    assert head["license"] == "other" and "toolformer" in head["tags"]
    for part in (training.id, annotation.id, "12 calls kept", "τ\\_f 0.5", "21.50", "SVAMP", "k most likely"):
        assert part in card, part
    assert "research" in card and "/home/me" not in card and str(exported.parent) not in card


def test_the_policy_stored_with_the_model_goes_along(results: Results, training: Run, tmp_path: Path) -> None:
    record = {"policy": "bias", "value": 1.5, "run": "ab", "development": {}, "by_tool": {}}
    (training.folder / "model" / "call_policy.json").write_text(json.dumps(record))
    export_model(results, training, tmp_path / "out")
    assert "bias 1.5" in (tmp_path / "out" / "README.md").read_text(encoding="utf-8")
    assert json.loads((tmp_path / "out" / "call_policy.json").read_text()) == record


def test_the_hub_reads_the_results_with_and_without_tools(exported: Path) -> None:
    folder = exported / ".eval_results"
    read = {
        path.name: parse_eval_result_entries(yaml.safe_load(path.read_text())) for path in folder.iterdir()
    }
    assert read.keys() == {"svamp.yaml", "svamp_with_tools.yaml"}, "dateset is not on the Hub"
    ((plain,), (called,)) = read["svamp.yaml"], read["svamp_with_tools.yaml"]
    assert (plain.value, called.value) == (
        8.4,
        21.5,
    ) and plain.dataset_id == called.dataset_id == "ChilleD/SVAMP"
    assert plain.notes.startswith("no-tools") and called.notes.startswith("tools; Toolformer; n = 100")


def test_every_evaluation_is_an_object_of_every_eval_ever(exported: Path) -> None:
    records = [json.loads(path.read_text()) for path in (exported / "every_eval_ever").iterdir()]
    required = {"schema_version", "evaluation_id", "retrieved_timestamp", "source_metadata", "model_info"}
    required |= {"eval_library", "evaluation_results"}
    assert len(records) == 2 and all(required <= record.keys() for record in records)
    results = {
        (record["model_info"]["additional_details"]["system"], each["evaluation_name"]): each
        for record in records
        for each in record["evaluation_results"]
    }
    assert len(results) == 5
    score = results["Toolformer", "svamp"]
    assert score["score_details"]["score"] == 21.5 and not score["metric_config"]["lower_is_better"]
    assert score["source_data"]["hf_repo"] == "ChilleD/SVAMP"
    assert score["score_details"]["uncertainty"]["confidence_interval"]["lower"] == 20.5
    assert results["Toolformer (disabled)", "wikitext_perplexity"]["metric_config"]["lower_is_better"]
    assert results["Toolformer", "dateset"]["source_data"]["source_type"] == "other"


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


def test_a_push_is_a_private_pull_request_of_all_files(
    hub: Hub,
    results: Results,
    training: Run,
    tmp_path: Path,
    capsys: Capture,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level("DEBUG")
    words = ["latest", str(tmp_path / "out"), "--push", "me/model", f"paths.root={results.root}"]
    assert main(["export", "model", *words]) == 0
    ((path, pushed),) = hub.commits
    assert hub.pull_requests == [True] and path == "/api/models/me/model/commit/refs%2Fpr%2F1"
    assert hub.created[0]["visibility"] == "private" and hub.tokens == {f"Bearer {SECRET}"}
    assert pushed == files(tmp_path / "out") and ".eval_results/svamp_with_tools.yaml" in pushed
    shown = capsys.readouterr()
    assert f"{hub.url}/me/model/discussions/1" in shown.out
    assert SECRET not in shown.out + shown.err + caplog.text
    assert not any(SECRET.encode() in content for content in files(tmp_path).values())


def test_public_and_commit_are_asked_for(hub: Hub, results: Results, annotation: Run, tmp_path: Path) -> None:
    words = [str(tmp_path / "out"), "--push", "me/data", "--public", "--commit", f"paths.root={results.root}"]
    assert main(["export", "dataset", "latest", *words]) == 0
    ((path, pushed),) = hub.commits
    assert path == "/api/datasets/me/data/commit/main" and not hub.pull_requests
    assert "data/train.parquet" in pushed
    assert hub.created[0]["visibility"] == "public" and hub.created[0]["type"] == "dataset"


def test_a_refused_push_shows_no_token_and_keeps_the_folder(
    hub: Hub, results: Results, training: Run, tmp_path: Path, refused: Refused
) -> None:
    hub.refuses = True
    words = [str(tmp_path / "out"), "--push", "me/model", f"paths.root={results.root}"]
    line = refused("export", "model", "latest", *words)
    assert "me/model was not updated" in line and SECRET not in line
    assert (tmp_path / "out" / "model.safetensors").is_file()


def test_a_hub_out_of_reach_is_one_line(
    hub: Hub,
    results: Results,
    training: Run,
    tmp_path: Path,
    refused: Refused,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("HF_ENDPOINT", f"http://127.0.0.1:{free_port()}")
    words = [str(tmp_path / "out"), "--push", "me/model", f"paths.root={results.root}"]
    assert "me/model was not updated" in refused("export", "model", "latest", *words)
