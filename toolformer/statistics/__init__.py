"""Intervals and paired tests of scores: pure functions on numbers, which import nothing else of the project."""
