"""Top-k API decoding: generation that calls tools (paper, section 4.2)."""
