"""The four stages: Hydra configuration in, tracked MLflow runs out. Hydra and MLflow meet here and nowhere else."""
