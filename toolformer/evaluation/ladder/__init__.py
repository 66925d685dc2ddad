"""The ladder of oracles: an example decoded with ever more of the right call given, and why its answer is right or wrong.

`gold` has the right call of an example, `rungs` decodes, `classes` decides. Not part of the scoring code that tells one
evaluation from another.
"""
