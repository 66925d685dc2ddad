"""The documents of every task, one function per benchmark: from a data folder, the hub, or a generator.

lm-eval calls them (`custom_dataset` of a task file) with the task's metadata and the task manager's. The task file has `hub`
(path, config or data_dir, split, revision) and `published_rows`; the caller may add `data_dir` (null is the hub; without the
key, the environment variable TOOLFORMER_DATA_DIR, and else the hub), `heldout` (documents) or `heldout_path`, `dateset_seed`,
`arithmetic_seed`, and `subset` with `seed` for a seeded subset. Other keys, such as the model's arguments, are ignored. Each
returns the split `test`.
"""
