"""Attacks on our own release: what a curious reader of the model can learn of planted secrets."""
