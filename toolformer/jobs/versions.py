"""The version of each step's code: what `Step.version` is.

Raise a number in the commit that changes the result, and with it the pinned results (tests/test_versions.py).
Results of other versions are not used any more; a comment, a faster path or a better message needs no new number.
"""

VERSIONS = {
    "documents": 1,
    "annotate": 3,
    "generate": 3,
    "train": 3,
    "answer": 3,
    "evaluate": 3,
}
ORACLES = 3
"""The version of the oracle conditions (`evaluation.oracles`), an input of the evaluations that have them."""
