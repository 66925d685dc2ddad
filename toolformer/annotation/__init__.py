"""Steps 1 to 5 of the method: select, propose, execute, score, merge (paper, section 2)."""
