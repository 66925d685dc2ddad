"""A completions endpoint on this machine that answers with a tiny real model, and can be told to misbehave."""

import json
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from toolformer.lm.language_model import LanguageModel

CHAT = "/v1/chat/completions"


@dataclass(frozen=True)
class Misbehaviour:
    """An answer that is none: this status, these headers and this body; or none for ever, or a byte of the body or of a header at a time."""

    status: int = 200
    body: bytes = b"{}"
    headers: Mapping[str, str] = field(default_factory=dict)
    hang: bool = False
    drip: bool = False
    drip_header: bool = False


class Completions(ThreadingHTTPServer):
    """OpenAI's protocol: prompts or one user message, greedy completions."""

    daemon_threads = True

    def __init__(self, model: LanguageModel, key: str = "") -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.model = model
        self.key = key
        # What was asked and answered, and the keys that came with it.
        self.payloads: list[dict[str, Any]] = []
        self.authorizations: list[str | None] = []
        self.answer: Any = None  # sent instead of a completion
        self.script: list[Misbehaviour] = []  # what happens to the next requests, one each
        self.over = threading.Event()  # set at the end, for requests that hang
        self.meet: threading.Barrier | None = (
            None  # so many requests have to be under way before one is answered
        )
        self.at_once = self.most_at_once = 0  # requests that wait for an answer, now and at most
        self.lock = threading.Lock()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/v1/completions"

    @property
    def chat_url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}{CHAT}"

    def complete(self, payload: dict[str, Any]) -> dict[str, Any]:
        prompt = payload["prompt"]
        prompts = prompt if isinstance(prompt, list) else [prompt]
        choices = [{"index": n, **self._continued(one, payload)} for n, one in enumerate(prompts)]
        return {"object": "text_completion", "model": payload["model"], "choices": choices}

    def _continued(self, prompt: Any, payload: dict[str, Any]) -> dict[str, Any]:
        assert isinstance(prompt, str) and payload["temperature"] == 0 and payload.get("stop") != []
        (text,) = self.model.generate([prompt], payload["max_tokens"], tuple(payload.get("stop", ())))
        return {"text": text, "logprobs": None}


class _Handler(BaseHTTPRequestHandler):
    server: Completions

    def do_POST(self) -> None:
        payload = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        with self.server.lock:
            bad = self.server.script.pop(0) if self.server.script else None
            if bad:
                self.server.authorizations.append(self.headers.get("Authorization"))
        self._misbehave(bad) if bad else self._behave(payload)

    def _misbehave(self, bad: Misbehaviour) -> None:
        with suppress(ConnectionError):
            if bad.hang:
                self.server.over.wait()
                return
            if bad.drip_header:
                self.wfile.write(b"HTTP/1.1 200 OK\r\nX-Slow: ")
                while not self.server.over.wait(0.05):
                    self.wfile.write(b"x")
                return
            self.send_response(bad.status)
            for name, value in {"Content-Length": str(len(bad.body)), **bad.headers}.items():
                self.send_header(name, value)
            self.end_headers()
            if not bad.drip:
                self.wfile.write(bad.body)
                return
            for byte in bad.body:
                if self.server.over.wait(0.05):
                    return
                self.wfile.write(bytes([byte]))

    def _behave(self, payload: dict[str, Any]) -> None:
        with self.server.lock:
            self.server.at_once += 1
            self.server.most_at_once = max(self.server.most_at_once, self.server.at_once)
        if self.server.meet:
            self.server.meet.wait()
        with self.server.lock:
            status, content = self._answer(payload)
            self.server.at_once -= 1
        body = json.dumps(content).encode()
        with suppress(ConnectionError):  # the other side may have given up
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

    def _answer(self, payload: dict[str, Any]) -> tuple[int, Any]:
        self.server.authorizations.append(self.headers.get("Authorization"))
        if self.server.key and self.headers.get("Authorization") != f"Bearer {self.server.key}":
            return 401, {"error": f"the key {self.headers.get('Authorization')} is wrong"}
        if self.path == CHAT:
            (message,) = payload["messages"]
            assert message["role"] == "user"
            self.server.payloads.append(payload)
            text = self.server.complete({**payload, "prompt": message["content"]})["choices"][0]["text"]
            return 200, {"choices": [{"index": 0, "message": {"role": "assistant", "content": text}}]}
        if self.path != "/v1/completions":
            return 404, {"error": "not found"}
        self.server.payloads.append(payload)
        return 200, self.server.complete(payload) if self.server.answer is None else self.server.answer

    def log_message(self, *_: Any) -> None:
        """Keeps the tests' output clean."""


@contextmanager
def served(model: LanguageModel, key: str = "") -> Iterator[Completions]:
    """A server on a free port, ended with the block."""
    server = Completions(model, key)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.over.set()
        server.shutdown()
        server.server_close()
        thread.join()
