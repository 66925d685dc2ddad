"""The documents of every task, one function a benchmark: from a data folder, the hub, or a generator.

lm-eval calls them (`custom_dataset` of a task file) with the task's metadata, into which the task manager's is mixed.
The task file gives `hub` (path, config or data_dir, split, revision) and `published_rows`; the caller may give
`data_dir` (null is the hub; not given, it is the environment variable TOOLFORMER_DATA_DIR, and without either the hub),
`heldout_path`, `dateset_seed`, `arithmetic_seed`, and `subset` with `seed` for a seeded subset.
Other keys are ignored: lm-eval mixes the model's arguments in. Each returns the split `test`.
"""
