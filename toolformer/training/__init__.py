"""Finetuning on C* or C: texts to packed sequences (`data`), packed sequences to a checkpoint (`trainer`)."""
