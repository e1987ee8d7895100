"""Wu et al. 2022, "Adaptive Differential Privacy for Language Modeling", on our own code (docs/reproduction-adp.md)."""
