"""Benchmarks run through lm-eval with a model: samples, metrics, traced policies, oracle conditions. No Hydra, no MLflow."""
