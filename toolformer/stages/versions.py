"""The version of each step's code: what `Step.version` is.

Raise a number in the commit that changes what the step comes to, and with it the pinned results (tests/test_versions.py).
Results of other versions are not used any more; a comment, a faster path or a better message needs no new number.
"""

VERSIONS = {
    "annotate": 1,
    "generate": 1,
    "train": 1,
    "answer": 1,
    "evaluate": 1,
    "explain": 1,
    "sweep": 1,
}
