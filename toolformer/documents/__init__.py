"""Documents and where they come from: files, folders, the hub, the demo corpus; and the date in a URL.

Ground floor. Knows nothing of tools or models. Corpora are streamed: no reader holds more than a few rows.
"""

from toolformer.documents.demo import demo_corpus
from toolformer.documents.document import Document, Fields
from toolformer.documents.files import FileCorpus
from toolformer.documents.hub import HubCorpus
from toolformer.documents.url_date import date_from_url

__all__ = [
    "Document",
    "Fields",
    "FileCorpus",
    "HubCorpus",
    "date_from_url",
    "demo_corpus",
]
