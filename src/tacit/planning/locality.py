"""Whether the policies of a run are of the kind that its configuration says: those that mark a token by that token alone."""

from __future__ import annotations

from tacit.config import RunConfig
from tacit.privacy.certificate_checks import Check
from tacit.privacy.ledger import Ledger
from tacit.screen_plan import plan_of
from tacit.screening.corpus import policies_of

__all__ = ["check_locality", "token_policies"]

_BOUND = {"balanced": "the balanced token policy", "conservative": "the conservative token policy"}
"""Under these names the ledger holds the digests of policies that mark token by token."""


def token_policies(config: RunConfig) -> dict[str, str]:
    """Digests of the policies of a run with ``screening.policies: tokens``, by their names in the ledger; of others nothing.

    Raises:
        DataError: a policy cannot be read.
        RefusedError: ``policy-not-local``: it is of another kind.
    """
    if config.screening is None or config.screening.policies != "tokens":
        return {}
    return {_BOUND[role]: policy.digest for role, policy in policies_of(plan_of(config)).items()}


def check_locality(config: RunConfig, ledger: Ledger) -> list[Check]:
    """Check whether a run with ``policies: tokens`` looked at both policies when it began, which refuses any other kind."""
    if config.screening is None or config.screening.policies != "tokens":
        return []
    missing = [name for name in _BOUND.values() if ledger.bound(name) is None]
    return [
        Check("policies that mark token by token", not missing, f"without {', '.join(missing)}" if missing else "both")
    ]
