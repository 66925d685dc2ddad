"""Search by HTTP: passages from a server with the protocol of Search-R1, such as a dense index.

`POST URL/retrieve` with `{"queries": [...], "topk": n, "return_scores": true}` gives `{"result": [[...], ...]}`, a list per
query. Its items are documents, or `{"document": ..., "score": ...}`; a document has `contents` (title, line break, text) or
`title` and `text`.
"""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any
from urllib.parse import urlsplit

import openai

from toolformer.credentials import is_address, shown_address
from toolformer.data import Document
from toolformer.errors import UserError
from toolformer.lm.endpoint import NoAnswer, open_client, post
from toolformer.step import NOTHING
from toolformer.tools.base import Fault, at_least_one
from toolformer.tools.retrieval.passages import (
    LONGEST_QUERY,
    SPARE,
    Passage,
    Retriever,
    passage_of_row,
    plain_line,
    retrieve_excluding_self,
)

log = logging.getLogger(__name__)

BATCH = 64
"""Queries per request."""


@dataclass(eq=False)
class HttpRetriever(Retriever):
    """A retriever served over HTTP. `Fault` if the server does not answer as it should; `UserError` without an address."""

    VERSION = 3
    is_remote = True
    url: str = ""
    """The server's address, such as http://127.0.0.1:8000; `/retrieve` is added."""
    topk: int = 10
    """Passages to ask for per query, before a document's own article is left out; more if a tool reads more."""
    timeout: Annotated[float, NOTHING] = 30.0
    """Seconds to wait for the server to respond, and again for the last byte of its answer."""
    tries: Annotated[int, NOTHING] = 3
    """Attempts per request, after HTTP 408, 409, 429, 5xx or no answer."""

    def __post_init__(self) -> None:
        if not is_address(self.url):
            raise UserError(
                "search: retriever.url must be an address without user name and password, such as http://127.0.0.1:8000"
            )
        at_least_one("search", topk=self.topk, tries=self.tries)
        if not 0 < self.timeout < float("inf"):
            raise UserError(
                f"search: retriever.timeout is {self.timeout}; it must be a number of seconds above 0"
            )

    @classmethod
    def describe(cls, settings: Mapping[str, Any]) -> str:
        """See `Part`."""
        return "a search server"

    def retrieve(self, queries: Sequence[str], k: int, documents: Sequence[Document]) -> list[list[Passage]]:
        """See `Retriever`; equal queries are sent once."""
        count = max(self.topk, k + SPARE)
        lines = {n: line for n, query in enumerate(queries) if (line := plain_line(query[:LONGEST_QUERY]))}
        distinct = list(dict.fromkeys(lines.values()))
        best: dict[str, list[Passage]] = {}
        with open_client("", self.timeout, self.tries) as client:
            for start in range(0, len(distinct), BATCH):
                batch = distinct[start : start + BATCH]
                best |= zip(batch, self._request(client, batch, count), strict=True)
        return retrieve_excluding_self(
            documents, list(lines), k, count, lambda numbers, _: [best[lines[n]] for n in numbers]
        )

    def _request(self, client: openai.OpenAI, queries: Sequence[str], count: int) -> list[list[Passage]]:
        def read(answer: Any) -> list[list[Passage]]:
            rows = answer["result"]
            if len(rows) != len(queries):
                raise ValueError(f"{len(rows)} results for {len(queries)} queries")
            return [[_passage(item) for item in row[:count]] for row in rows]

        body = {"queries": list(queries), "topk": count, "return_scores": True}
        address = urlsplit(self.url)
        path = f"{address.path.rstrip('/').removesuffix('/retrieve')}/retrieve"
        try:
            found: list[list[Passage]] = post(
                client, address._replace(path=path).geturl(), body, read, lacks="is not a list of passages"
            )
        except NoAnswer as error:
            if error.detail:
                log.warning("%s: %s", shown_address(self.url), error.described())
            raise Fault(f"search server {error}") from None
        return found


def _passage(item: Mapping[str, Any]) -> Passage:
    row = item.get("document", item)
    passage = passage_of_row(row, str(row.get("id", "")), float(item.get("score") or 0.0))
    if not passage.text:
        raise ValueError("a passage without text")
    return passage
