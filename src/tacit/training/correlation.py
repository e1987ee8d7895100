"""The matrix that correlates the noise of steps: banded, lower triangular, the same along each diagonal.

Where the sums of the steps are the rows of X, what is released is X + C^-1 Z with independent noise Z: as much as C X + Z, so one
unit's part in C X is what counts. The noise of a step takes back a part of what the steps before it added, and the sum of many steps
holds less of it than independent noise leaves.

C is the square root of the matrix of prefix sums, cut to its first bands (Kalinin and Lampert 2024, arXiv 2405.13763, after
Fichtenberger, Henzinger and Upadhyay 2023, arXiv 2202.11205), with columns of norm at most 1.
"""

from __future__ import annotations

import math

import numpy as np

__all__ = ["banded_column", "noise_in_mean"]


def banded_column(bands: int) -> np.ndarray:
    """The first column of C from its diagonal down (bands,), of norm 1; a later column is the same, and may be cut at the end.

    Its entries are as those of (1 - x)^(-1/2): 1, 1/2, 3/8, 5/16, ...

    >>> (banded_column(3) / banded_column(3)[0]).round(4).tolist()
    [1.0, 0.5, 0.375]
    """
    entries = np.ones(bands)
    for band in range(1, bands):
        entries[band] = entries[band - 1] * (2 * band - 1) / (2 * band)
    return entries / math.sqrt((entries**2).sum())


def noise_in_mean(column: np.ndarray, steps: int) -> float:
    """Standard deviation of the noise in the sum of all steps, over that of independent noise of the same multiplier.

    The last row of the prefix sums times C^-1 is 1^T C^-1, by going back through C^T.

    >>> noise_in_mean(banded_column(1), 100)
    1.0
    """
    row = np.zeros(steps)
    for place in range(steps - 1, -1, -1):
        after = row[place + 1 : place + len(column)]
        row[place] = (1.0 - column[1 : 1 + len(after)] @ after) / column[0]
    return float(np.sqrt((row**2).sum() / steps))
