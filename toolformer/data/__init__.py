"""Documents and where they come from: files, folders, the hub, the demo corpus. Streamed, never held whole."""

from toolformer.data.corpus import Bundled, Corpus, content_hash
from toolformer.data.document import Document, Fields, content_id
from toolformer.data.files import FileCorpus, demo_corpus
from toolformer.data.hub import HubCorpus
from toolformer.data.row_corpus import RowCorpus
from toolformer.data.url_date import date_from_url

__all__ = [
    "Bundled",
    "Corpus",
    "Document",
    "Fields",
    "FileCorpus",
    "HubCorpus",
    "RowCorpus",
    "content_hash",
    "content_id",
    "date_from_url",
    "demo_corpus",
]
