"""Running a language model: loading, batching, key-value caches, losses, greedy text, sequence to sequence, language id."""
