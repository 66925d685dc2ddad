"""A data folder (`paths.data_dir`): where each file comes from (`table`), its rows (`convert`), and how it is fetched (`fetch`)."""
