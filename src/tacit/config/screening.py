"""How the private corpus is screened: the section ``screening``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import Field

from tacit.config.base import Count, Options
from tacit.config.privacy import check_data_points
from tacit.errors import RefusedError, UsageError

if TYPE_CHECKING:
    from tacit.config.run import RunConfig

__all__ = ["GroupOptions", "ScreeningOptions", "check_screening"]


class GroupOptions(Options):
    """What the confidentiality statement covers as one: all secrets of a document, or of a user, together.

    Args:
        by: ``document``, or ``user``: data points with the same id (``private.id_field``, ``private.user_field``) are a group.
        most: data points of a group at most; a corpus with a larger group is refused (exit code 4).
    """

    by: Literal["document", "user"]
    most: Count


class ScreeningOptions(Options):
    """How the private corpus is screened before training: redacted, deduplicated, split in two streams (Zhao et al. 2022).

    The private stream is trained on with noise, the public one without. What is then guaranteed is confidentiality, and no
    longer differential privacy of the corpus (docs/confidentiality.md). It needs ``relation: replace``, ``unit: record`` and
    ``vocabulary.method: public`` or ``given``.

    Args:
        policies: ``tokens``: both policies are files of ``kind: tokens``, which mark each token by that token alone, so that what is
            caught leaves no trace and ``gamma`` lowers epsilon (docs/confidentiality.md); ``context``: any policies.
        data_point: ``record``, or ``line``: every line of a record is a data point of its own, such as a turn of a dialogue.
        balanced: policy file of pi, whose spans are masked; the package's own when not given.
        conservative: policy file of pi_c, which decides what is trained on with noise; the package's own when not given.
        missed: as an experiment the balanced policy misses this share of the secrets that it finds, by a keyed hash of each; the
            conservative one misses none of them. ``gamma`` must be at least as large.
        deduplicate: ``none``; ``exact``: data points that are equal once redacted are masked as a whole, all but the first; or
            ``unmasked``: that, among the private ones in which redaction masked nothing.
        normalisation: what counts as equal (docs/deduplication.md).
        gamma: upper bound on the share of secrets that the balanced policy misses. It is not checked, and reported as assumed. Not
            given: 1, which guarantees nothing, so the run is refused (``no-confidentiality``).
        delta2: the same of both policies together. Not given: 1, which guarantees nothing either.
        measurement: instead of both, the file of `tacit screen --measure GOLD --out FILE`: its bounds are used, and reported as
            measured. It must be of the policies and data points that the run uses.
        group: what the statement covers as one; not given: one secret in one data point.
    """

    added_later = frozenset({"measurement", "policies"})

    policies: Literal["context", "tokens"] = "context"
    data_point: Literal["record", "line"] = "record"
    balanced: str | None = None
    conservative: str | None = None
    missed: Annotated[float, Field(ge=0, lt=1)] = 0.0
    deduplicate: Literal["none", "exact", "unmasked"] = "none"
    normalisation: Literal["none", "whitespace", "casefold"] = "none"
    gamma: Annotated[float, Field(ge=0, le=1)] | None = None
    delta2: Annotated[float, Field(ge=0, le=1)] | None = None
    measurement: str | None = None
    group: GroupOptions | None = None

    @property
    def resolved_measurement(self) -> Path | None:
        """The file with ``${NAME}`` and ``${NAME:-default}`` replaced from the environment."""
        return None if self.measurement is None else self.located(self.measurement)

    @property
    def policy_paths(self) -> dict[Literal["balanced", "conservative"], Path | None]:
        """Where each policy is; None: in the package."""
        return {
            "balanced": None if self.balanced is None else self.located(self.balanced),
            "conservative": None if self.conservative is None else self.located(self.conservative),
        }


def check_screening(config: RunConfig) -> None:
    if config.screening is None:
        return
    check_data_points(
        config,
        "screening",
        RefusedError(
            "screening-needs-replace",
            "privacy.relation must be replace with screening: a secret that is redacted or not changes a record, and adds or "
            "removes none (docs/confidentiality.md)",
        ),
        "the vocabulary comes from the screened text, or from outside",
    )
    group = config.screening.group
    if group is not None and group.by == "user" and config.private.user_field is None:
        raise UsageError(
            "screening.group.by is user but private.user_field is not set: name the field that holds the user's id"
        )
    if config.screening.policies == "tokens":
        _check_locality(config.screening)
    _check_bounds(config.screening)


def _check_locality(options: ScreeningOptions) -> None:
    """Refuse what makes a caught token change more than itself, or gamma bound something else than the misses of one secret."""
    if None in options.policy_paths.values():
        raise RefusedError(
            "policy-not-local",
            "screening.policies is tokens, but the package's own policies read context: give files of kind: tokens as balanced and "
            "conservative",
        )
    if options.missed:
        raise RefusedError(
            "policy-not-local",
            "screening.policies is tokens, but screening.missed misses masked runs, which neighbours are part of: leave one out",
        )
    if options.group is not None:
        raise RefusedError(
            "group-with-tokens",
            "screening.policies is tokens, but gamma is of one secret, and a data point of a group may hold several: leave "
            "screening.group out, or take policies: context",
        )


def _check_bounds(options: ScreeningOptions) -> None:
    """Bounds on the misses are given once, and allow for those that are made on purpose.

    Raises:
        UsageError: they do not.
    """
    if options.measurement is not None:
        for name in ("gamma", "delta2"):
            if getattr(options, name) is not None:
                raise UsageError(
                    f"screening.{name}: screening.measurement has the measured bound; leave one of them out"
                )
        if options.missed:
            raise UsageError(
                "screening.measurement measures the policies as they are, but screening.missed makes one of them miss more; give "
                "gamma and delta2 instead"
            )
    if options.gamma is not None and options.gamma < options.missed:
        raise UsageError(
            f"screening.gamma is {options.gamma:g}, but screening.missed makes the policy miss {options.missed:g} of the secrets; "
            "raise gamma"
        )
