"""Benchmarks run through lm-eval with a model: samples, metrics, oracle conditions. No Hydra, no MLflow."""
