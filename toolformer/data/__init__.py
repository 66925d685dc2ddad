"""Documents and where they come from: files, folders, the hub, the demo corpus. Corpora are streamed."""

from toolformer.data.document import Document, Fields, content_id
from toolformer.data.files import FileCorpus, demo_corpus
from toolformer.data.hub import HubCorpus
from toolformer.data.row_corpus import RowCorpus
from toolformer.data.url_date import date_from_url

__all__ = [
    "Document",
    "Fields",
    "FileCorpus",
    "HubCorpus",
    "RowCorpus",
    "content_id",
    "date_from_url",
    "demo_corpus",
]
