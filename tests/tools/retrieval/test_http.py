"""Passages from a small real server with Search-R1's protocol, which may misbehave."""

import json
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from tests.build import OTHER_DOCUMENT
from toolformer.credentials import masked
from toolformer.data import Document
from toolformer.errors import UserError
from toolformer.jobs import instantiate
from toolformer.jobs.config import compose, validate
from toolformer.lm.endpoint import MOST_BYTES
from toolformer.tools.base import Fault, Result
from toolformer.tools.retrieval.http import HttpRetriever
from toolformer.tools.runtime import ToolRuntime
from toolformer.tools.search import WikiSearch

Answer = tuple[int, dict[str, str], bytes]


class Server(ThreadingHTTPServer):
    """Answers every request by a function, and keeps what was asked."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.requests: list[dict[str, Any]] = []
        self.paths: list[str] = []
        self.passages: list[Any] = [scored(1, "Ghana"), scored(2, "Accra")]
        self.answer: Callable[[dict[str, Any]], Answer] = self.result

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"

    def result(self, request: dict[str, Any]) -> Answer:
        rows = [self.passages[: request["topk"]] for _ in request["queries"]]
        return 200, {}, json.dumps({"result": rows}).encode()


class _Handler(BaseHTTPRequestHandler):
    server: Server

    def do_POST(self) -> None:
        request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.requests.append(request)
        self.server.paths.append(self.path)
        status, headers, body = self.server.answer(request)
        self.send_response(status)
        for name, value in {"Content-Length": str(len(body)), **headers}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        """Keeps the tests' output clean."""


@pytest.fixture
def server() -> Iterator[Server]:
    made = Server()
    thread = threading.Thread(target=made.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    yield made
    made.shutdown()
    made.server_close()
    thread.join()


def scored(number: int, title: str) -> dict[str, Any]:
    contents = f'"{title}"\n{title} is text {number}.'
    return {"document": {"id": f"{number}", "contents": contents}, "score": 1 / number}


def titles(
    retriever: HttpRetriever, query: str, k: int = 1, document: Document = OTHER_DOCUMENT
) -> list[str]:
    (found,) = retriever.retrieve([query], k, [document])
    return [passage.title for passage in found]


def test_passages_come_with_title_text_and_score(server: Server) -> None:
    (first, second), (third,), none = HttpRetriever(server.url).retrieve(
        ["flag", "flag", " "], 2, [OTHER_DOCUMENT, Document("d", "", source_id="1"), OTHER_DOCUMENT]
    )
    assert (first.passage_id, first.title, first.text, first.score) == ("1", "Ghana", "Ghana is text 1.", 1.0)
    assert (second.title, third.title, none) == ("Accra", "Accra", [])
    assert server.requests == [{"queries": ["flag"], "topk": 10, "return_scores": True}]
    assert server.paths == ["/retrieve"]


@pytest.mark.parametrize(
    "document",
    [
        {"id": 7, "contents": "Ghana\nGhana is a country."},
        {"title": "Ghana", "text": "Ghana is a country."},
        {"document": {"title": "Ghana", "text": "Ghana is <b>a</b> country."}},
    ],
)
def test_documents_of_other_servers(document: dict[str, Any], server: Server) -> None:
    server.passages = [document]
    tool = WikiSearch(HttpRetriever(f"{server.url}/retrieve"))
    assert tool.run(["flag"], [OTHER_DOCUMENT]) == [Result("Ghana > Ghana is a country.")]
    assert server.paths == ["/retrieve"] and tool.is_remote


def test_a_tool_that_reads_more_asks_for_more(server: Server) -> None:
    server.passages = [scored(n, f"T{n}") for n in range(1, 60)]
    assert len(titles(HttpRetriever(server.url, topk=2), "x", 40)) == 40
    assert server.requests[-1]["topk"] >= 40


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        ((500, {}, b""), "search server answers HTTP 500"),
        ((200, {}, b'{"result": []}'), "search server gives an answer that is not a list of passages (ValueError)"),
        ((200, {}, b'{"results": [[]]}'), "search server gives an answer that is not a list of passages (KeyError)"),
        ((200, {}, b'{"result": [[5]]}'), "search server gives an answer that is not a list of passages (AttributeError)"),
        ((200, {}, b'{"result": [[{"id": "1"}]]}'), "search server gives an answer that is not a list of passages (ValueError)"),
        ((200, {}, b" " * MOST_BYTES + b'{"result": [[]]}'),
         "search server gives an answer that is not a list of passages (JSONDecodeError)"),
    ],
    ids=["500", "wrong length", "no result", "number", "no text", "too long"],
)  # fmt: skip
def test_another_answer_is_a_fault(answer: Answer, reason: str, server: Server) -> None:
    server.answer = lambda request: answer
    tool = ToolRuntime(WikiSearch(HttpRetriever(server.url, tries=1)))
    assert tool.run(["flag"], [OTHER_DOCUMENT]) == [Result(reason=reason, fault=True)]


def test_a_server_that_is_away_is_a_fault_of_all_its_calls() -> None:
    tool = ToolRuntime(WikiSearch(HttpRetriever("http://127.0.0.1:9", tries=1)))
    away = Result(reason="search server does not answer (ConnectError)", fault=True)
    assert tool.run(["a", "b"], [OTHER_DOCUMENT] * 2) == [away] * 2


def test_a_request_is_tried_again(server: Server) -> None:
    answers = iter([(429, {"retry-after-ms": "1"}, b""), (503, {"retry-after-ms": "1"}, b"")])
    server.answer = lambda request: next(answers, None) or server.result(request)
    assert titles(HttpRetriever(server.url, tries=3), "flag") == ["Ghana"]
    assert len(server.requests) == 3


def test_a_server_that_never_answers_is_left(server: Server) -> None:
    gate = threading.Event()
    server.answer = lambda request: (200, {}, b"" if gate.wait(30) else b"")
    with pytest.raises(Fault, match="ReadTimeout"):
        HttpRetriever(server.url, timeout=0.2, tries=1).retrieve(["a"], 1, [OTHER_DOCUMENT])
    gate.set()


@pytest.mark.parametrize("url", ["", "127.0.0.1:8000", "http://me:hunter2@127.0.0.1"])
def test_what_is_no_address(url: str) -> None:
    with pytest.raises(UserError, match="must be an address") as error:
        HttpRetriever(url)
    assert "hunter2" not in str(error.value)


def test_results_are_cached_under_address_and_topk(server: Server, tmp_path: Path) -> None:
    place = "tool.search.implementation.retriever"
    overrides = [f"retriever@{place}=http", f"{place}.url='{server.url}?key=hunter2'", "tools=[search]"]

    def search(*more: str) -> str | None:
        config = validate(
            compose("generate", [*overrides, "tool.search.cache=true", f"paths.root={tmp_path}", *more])
        )
        assert "hunter2" not in str(masked(config.tool["search"].implementation))
        return instantiate.tools(config)["search"].run(["flag"], [OTHER_DOCUMENT])[0].text

    assert [search() for _ in range(2)] == ["Ghana > Ghana is text 1."] * 2
    assert server.paths == ["/retrieve?key=hunter2"], "the second is from the cache"
    search(f"{place}.topk=3")
    search(f"{place}.timeout=9")
    assert [request["topk"] for request in server.requests] == [10, 4]
