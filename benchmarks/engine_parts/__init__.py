"""What ``benchmarks/engine.py`` measures: the cases and their bars, and the ways to make a step."""
