"""A server on this machine that plays the Hugging Face hub for data sets, and serves other files at any address."""

import hashlib
import io
import json
import re
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

import pyarrow as pa
import pyarrow.parquet as pq
import yaml

COMMIT = "0123456789abcdef0123456789abcdef01234567"
Rows = Sequence[Mapping[str, Any]]


class HubServer(ThreadingHTTPServer):
    """Data sets as Parquet files, a folder per configuration; and `files` by path, with byte ranges."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.repositories: dict[str, dict[str, bytes]] = {}
        self.files: dict[str, bytes] = {}
        self.asked: list[tuple[str, str | None]] = []
        """Path and range of every request for a file."""
        self.redirects: dict[str, str] = {}
        self.breaks_after: int | None = None
        """Bytes after which the connection is closed, once."""

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"

    def add(self, pin: Mapping[str, Any], rows: Rows) -> None:
        """Publishes rows as the split that a pin names (of several, as the first)."""
        config, folder = pin.get("config"), pin.get("data_dir") or pin.get("config") or "data"
        splits = [pin["split"]] if isinstance(pin["split"], str) else pin["split"]
        files = self.repositories.setdefault(pin["path"], {})
        for split, part in zip(
            splits, [rows[: len(rows) - len(splits) + 1], *([row] for row in rows[-1:])], strict=False
        ):
            buffer = io.BytesIO()
            pq.write_table(pa.Table.from_pylist([dict(row) for row in part]), buffer)
            files[f"{folder}/{split}-00000-of-00001.parquet"] = buffer.getvalue()
        if config:
            paths = [{"split": split, "path": f"{folder}/{split}-*"} for split in splits]
            known = yaml.safe_load(files.get("README.md", b"---\nconfigs: []\n---").decode().split("---")[1])[
                "configs"
            ]
            card = yaml.safe_dump({"configs": [*known, {"config_name": config, "data_files": paths}]})
            files["README.md"] = f"---\n{card}---\n".encode()


@contextmanager
def serving() -> Iterator[HubServer]:
    """A server that runs until the block ends."""
    server = HubServer()
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


class _Handler(BaseHTTPRequestHandler):
    server: HubServer
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        path = unquote(urlsplit(self.path).path)
        if path in self.server.redirects:
            self._answer(302, b"", {"Location": self.server.redirects[path]})
        elif path in self.server.files:
            self._file(path, self.server.files[path], {})
        elif match := re.fullmatch(r"/datasets/(\w[\w.-]*/[\w.-]+)/resolve/(.+?)/([^/]+/?[^/]*)", path):
            self._resolve(match[1], path)
        elif match := re.fullmatch(r"/api/datasets/(\w[\w.-]*/[\w.-]+)(/.*)?", path):
            self._api(match[1], match[2] or "")
        else:
            self._answer(404, b"{}", {})

    do_HEAD = do_GET

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"])).decode()
        match = re.fullmatch(
            r"/api/datasets/(\w[\w.-]*/[\w.-]+)/paths-info/.+", unquote(urlsplit(self.path).path)
        )
        files = self.server.repositories.get(match[1]) if match else None
        if files is None:
            return self._answer(404, b"{}", {})
        is_json = "json" in self.headers.get("Content-Type", "")
        names = json.loads(body)["paths"] if is_json else parse_qs(body).get("paths", [])
        return self._json([_entry(name, files[name]) for name in names if name in files])

    def _resolve(self, repository: str, path: str) -> None:
        files = self.server.repositories.get(repository, {})
        name = next((name for name in files if path.endswith(f"/{name}")), None)
        if name is None:
            return self._answer(404, b"", {"X-Error-Code": "EntryNotFound", "X-Repo-Commit": COMMIT})
        etag = hashlib.sha256(files[name]).hexdigest()
        return self._file(path, files[name], {"X-Repo-Commit": COMMIT, "ETag": f'"{etag}"'})

    def _api(self, repository: str, rest: str) -> None:
        files = self.server.repositories.get(repository)
        if files is None:
            return self._answer(404, b"{}", {"X-Error-Code": "RepoNotFound"})
        if "/tree/" not in rest:
            siblings = [{"rfilename": name} for name in files]
            return self._json(
                {"id": repository, "sha": COMMIT, "siblings": siblings, "private": False, "tags": []}
            )
        folder = re.sub(r"^/tree/(refs/convert/parquet|[^/]+)/?", "", rest)
        inside = {
            name: data for name, data in files.items() if name.startswith(f"{folder}/" if folder else "")
        }
        if "recursive=true" in self.path.lower():
            return self._json([_entry(name, data) for name, data in inside.items()])
        prefix = f"{folder}/" if folder else ""
        direct = {name: data for name, data in inside.items() if "/" not in name[len(prefix) :]}
        folders = {prefix + name[len(prefix) :].split("/")[0] for name in inside.keys() - direct.keys()}
        shown = [{"type": "directory", "path": name, "oid": COMMIT, "size": 0} for name in sorted(folders)]
        return self._json([*shown, *(_entry(name, data) for name, data in direct.items())])

    def _file(self, path: str, data: bytes, headers: Mapping[str, str]) -> None:
        span = self.headers.get("Range")
        if self.command == "GET":
            self.server.asked.append((path, span))
        match = re.fullmatch(r"bytes=(\d+)-(\d*)", span or "")
        if not match:
            return self._answer(200, data, headers)
        first, last = int(match[1]), int(match[2] or len(data) - 1)
        if first >= len(data):
            return self._answer(416, b"", headers)
        content = {"Content-Range": f"bytes {first}-{min(last, len(data) - 1)}/{len(data)}"}
        return self._answer(206, data[first : last + 1], {**headers, **content})

    def _json(self, value: Any) -> None:
        self._answer(200, json.dumps(value).encode(), {"Content-Type": "application/json"})

    def _answer(self, status: int, body: bytes, headers: Mapping[str, str]) -> None:
        self.send_response(status)
        for name, value in {"Content-Length": str(len(body)), "Accept-Ranges": "bytes", **headers}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command == "HEAD":
            return
        limit, self.server.breaks_after = self.server.breaks_after, None
        self.wfile.write(body[:limit])
        self.close_connection = limit is not None

    def log_message(self, *_: Any) -> None:
        """Requests are not logged."""


def _entry(name: str, data: bytes) -> dict[str, Any]:
    return {"type": "file", "path": name, "size": len(data), "oid": hashlib.sha1(data).hexdigest()}
