"""A data folder (`paths.data_dir`): where each file comes from (`table`), the texts of `experiment=evidence` (`texts`), and how it is fetched (`fetch`)."""
