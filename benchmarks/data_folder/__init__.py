"""A data folder (`paths.data_dir`): where each file comes from (`table`), the texts of `experiment=headline` (`texts`), and how it is fetched (`fetch`)."""
