"""Poisson sampling, per-example clipping and noise: the three steps of DP-SGD that carry its guarantee.

It knows tensors, not text.

factors.py   one parameter's per-unit gradients without a (p, d) tensor a unit
rules.py     which factors each kind of layer has: the table to extend
sites.py     which layers of a model to hook, and what is refused
capture.py   what a clipping context records
clipping.py  from norms to coefficients: flat, automatic, per-layer
clipper.py   the context: norms, coefficients, clipped sum
fallback.py  layers without a rule, under vmap
lstm.py      nn.LSTM, computed so that its gates' gradients are at hand
heads.py     output heads whose logits never exist whole
sampler.py   Poisson sampling and fixed-shape micro-batches
noise.py     Gaussian noise on the sum, keyed by step and parameter
"""

from tacit.engine.clipper import PerExampleClipper
from tacit.engine.clipping import CLIPPINGS, AutomaticClipping, Clipping, FlatClipping, PerLayerClipping
from tacit.engine.noise import add_noise_
from tacit.engine.rules import RULES, Rule
from tacit.engine.sampler import micro_batches, poisson_sample

__all__ = [
    "CLIPPINGS",
    "RULES",
    "AutomaticClipping",
    "Clipping",
    "FlatClipping",
    "PerExampleClipper",
    "PerLayerClipping",
    "Rule",
    "add_noise_",
    "micro_batches",
    "poisson_sample",
]
