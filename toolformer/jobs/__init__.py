"""The stages: a configuration becomes a step, and the step's folder is filled."""
