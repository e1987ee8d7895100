"""Adaptive differential privacy (Wu et al. 2022): the privacy probability of each record, from a public language model."""
