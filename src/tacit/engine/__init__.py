"""Poisson sampling, per-example clipping and noise: the three steps of DP-SGD that carry its guarantee.

It knows tensors, not text.

factors.py   one parameter's per-unit gradients without a (p, d) tensor a unit
rules.py     which factors each kind of layer has: the table to extend
sites.py     which layers of a model to hook, and what is refused
capture.py   what a clipping context records
clipper.py   the context: norms, coefficients, clipped sum
sampler.py   Poisson sampling and fixed-shape micro-batches
noise.py     Gaussian noise on the sum, keyed by step and parameter
"""

from tacit.engine.clipper import PerExampleClipper, clip_coefficients
from tacit.engine.noise import add_noise_
from tacit.engine.rules import RULES, Rule
from tacit.engine.sampler import micro_batches, poisson_sample

__all__ = [
    "RULES",
    "PerExampleClipper",
    "Rule",
    "add_noise_",
    "clip_coefficients",
    "micro_batches",
    "poisson_sample",
]
