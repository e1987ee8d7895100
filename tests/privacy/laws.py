"""Laws on few outcomes, drawn at random, and their divergence by trying every event."""

from __future__ import annotations

import math

import numpy as np
from hypothesis import strategies as st


def law(outcomes: int) -> st.SearchStrategy[np.ndarray]:
    """Laws on so many outcomes, zeros included."""
    weights = st.lists(st.integers(0, 20), min_size=outcomes, max_size=outcomes).filter(any)
    return weights.map(lambda row: np.array(row) / sum(row))


def best_event(p: np.ndarray, q: np.ndarray, epsilon: float) -> float:
    """max over all events S of P(S) - exp(epsilon) Q(S), one event after the other."""
    events = (np.arange(2 ** len(p))[:, None] >> np.arange(len(p))) & 1
    return float(np.max(events @ p - math.exp(epsilon) * (events @ q)))
