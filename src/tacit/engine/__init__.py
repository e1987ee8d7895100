"""Poisson sampling, per-example clipping and noise: the three steps of DP-SGD that carry its guarantee.

It knows tensors, not text.

factors.py     one parameter's per-unit gradients without a (p, d) tensor a unit
logits.py      the factor of an output head with a large vocabulary
combining.py   a parameter with several uses: ties and their cross terms
rules.py       which factors each kind of layer has: the table to extend
lstm.py        nn.LSTM, computed so that its gates' gradients are at hand
fallback.py    layers without a rule, under vmap
sites.py       which layers of a model to hook, and what is refused
capture.py     what a clipping context records
positions.py   positions without a gradient, left out
probing.py     whether the loss of one example reaches another one's rows
guards.py      what must not change around and inside a context
clipper.py     the context: norms, coefficients, clipped sum
cross_entropy.py  the losses of logits that a model gave
heads.py       output heads whose logits never exist whole
sampler.py     Poisson sampling and fixed-shape micro-batches
noise.py       Gaussian noise on the sum, keyed by step and parameter
distributed.py several processes that add up their sums
sharding.py    parameters that FSDP2 shards over processes
"""

from tacit.clipping import CLIPPINGS, AutomaticClipping, Clipping, FlatClipping, PerLayerClipping
from tacit.engine.clipper import PerExampleClipper
from tacit.engine.cross_entropy import cross_entropy
from tacit.engine.heads import at_positions, causal_losses, token_losses
from tacit.engine.noise import add_noise_, on_grid
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
    "at_positions",
    "causal_losses",
    "cross_entropy",
    "micro_batches",
    "on_grid",
    "poisson_sample",
    "token_losses",
]
