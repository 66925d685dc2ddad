"""Error analysis with oracles: examples decoded again with increasingly strong oracles, and a class for each by the results.

`gold` finds the right call of an example, `rungs` decodes, `classes` decides.
"""
