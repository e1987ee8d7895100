"""What accounting leaves in memory, which is more than a small model's training takes, and letting go of it."""

from __future__ import annotations

import contextlib
import ctypes

from tacit.privacy.accounting.accountant import shared_account
from tacit.privacy.accounting.composition import chosen_pld
from tacit.privacy.accounting.exchange import exchange_pld
from tacit.privacy.accounting.sampled_gaussian import poisson_gaussian_pld
from tacit.privacy.accounting.self_composition import let_go_of_plans
from tacit.privacy.accounting.weighted import worst_case_pld

__all__ = ["let_go"]


def let_go() -> None:
    """Let go of what a search for noise has tried, tens of MiB for each account: nobody asks for those again.

    Three things are let go of: the accounts that are kept for another question; scipy's plans of Fourier transforms, which are
    replaced only by other plans; and free heap, where the C library can give it back to the system (glibc's ``malloc_trim``).
    """
    for kept in (shared_account, chosen_pld, exchange_pld, poisson_gaussian_pld, worst_case_pld):
        kept.cache_clear()
    let_go_of_plans()
    with contextlib.suppress(OSError, AttributeError, TypeError):  # another system's library
        ctypes.CDLL(None).malloc_trim(0)
