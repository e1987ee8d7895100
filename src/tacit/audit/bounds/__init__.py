"""Lower bounds on epsilon from what an attacker found: the statistics of a privacy audit.

Pure numbers: no model and no run. A caller gives `Scores` or `Ranks`, chooses a member of `BOUNDS` and its numbers *before* it
looks, and gets a `LowerBound`. With `judge` it becomes a verdict, beside the epsilon that was proved.
"""
