"""Finding passages: one interface, two backends (bm25s in pure pip, Lucene by way of Pyserini's jar)."""
