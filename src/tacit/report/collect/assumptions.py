"""What a run's guarantee rests on, and how well each of it is known: one function a part of the run."""

from __future__ import annotations

from typing import Any

from tacit.config import RunConfig
from tacit.planning.adaptive import bands_from
from tacit.planning.selective import run_account
from tacit.privacy.provenance import (
    GENUINE,
    HONEST_PROGRAMS,
    HONEST_WEIGHTS,
    UNKNOWN,
    has_others_programs,
    has_others_weights,
)
from tacit.report import prose, schema
from tacit.screen_plan import streams_needed

__all__ = ["assumptions"]


def assumptions(
    config: RunConfig, start: dict[str, Any], shares: tuple[schema.MissedShare, ...] = ()
) -> tuple[schema.Assumption, ...]:
    """What the guarantee rests on, that of the run's own parts first.

    Args:
        start: the certificate's block, which says where the run began.
        shares: the bounds on what the policies miss, of a run with screening.
    """
    unit = config.privacy.unit_name
    rows: list[tuple[str, Any]] = [
        *_screening_assumptions(config, shares),
        *_selective_assumptions(config),
        *_start_assumptions(start),
        *_adaptive_assumptions(config),
        (
            "Epsilon is the joint privacy loss distribution of every ledger entry; Renyi DP bounds it independently.",
            "proved",
        ),
        *_vocabulary_law(config),
        (f"The ids in the private corpus say correctly which texts belong to one {unit}.", "assumed"),
        (
            f"privacy.units = {config.privacy.units} was stated without looking at the private corpus (it sets the sampling "
            "probability; the guarantee holds whatever the true number is).",
            "assumed",
        ),
        (
            "Steps, noise, clip norm, model size and all other options were fixed without looking at the private text.",
            "assumed",
        ),
        *_domain(config),
        ("The run's key and everything in run/private stay secret.", "assumed"),
        (
            "Noise has its law to the precision of a double, and is rounded with its sums to a public grid (but that of a selective "
            "phase's states, and of adaptive.form: literal): by what it differs from the exact law there is not modelled.",
            "assumed",
        ),
    ]
    return tuple(schema.Assumption(text=text, label=label) for text, label in rows)


def _domain(config: RunConfig) -> list[tuple[str, Any]]:
    """What every corpus is like that the guarantee compares: on another one a run stops, and that it stops can be seen."""
    user = ", each with its user" if config.privacy.unit_name == "user" else ""
    rows: list[tuple[str, Any]] = [
        (
            f"Every corpus that could stand in this one's place can be read: at least one record, the named fields{user}, valid "
            f"Unicode, at most {config.private.max_record_bytes} bytes a record; memory, disk and time suffice for it.",
            "assumed",
        )
    ]
    if config.screening is not None and "public" in streams_needed(config):
        rows.append(("Of every such corpus the screening lets at least one data point through.", "assumed"))
    return rows


def _vocabulary_law(config: RunConfig) -> list[tuple[str, Any]]:
    law = config.vocabulary.how.law
    return [] if law is None else [(law, "proved")]


def _screening_assumptions(config: RunConfig, shares: tuple[schema.MissedShare, ...] = ()) -> list[tuple[str, Any]]:
    options = config.screening
    if options is None:
        return []
    rows: list[tuple[str, Any]] = []
    if options.group is not None:
        rows.append(
            (
                f"The secrets of one {options.group.by} are in its own data points alone. These are at most "
                f"{options.group.most}: a corpus with more is refused.",
                "assumed",
            )
        )
    if options.policies == "tokens":
        rows += [
            ("A policy is asked about one token at a time: what it marks is a function of that token alone.", "proved"),
            (
                "A secret is whole tokens of one data point, drawn independently of all other text, and occurs nowhere else; no "
                "private text made the policies.",
                "assumed",
            ),
        ]
    if not shares:
        rows.append(("What the screening misses was neither measured nor stated.", "assumed"))
    rows += [(prose.share_sentence(share), share.label) for share in shares]
    if any(share.label == "measured" for share in shares):
        rows.append(
            (
                "The labels are right, and the labelled secrets were drawn independently and like those of the private text. How "
                "many there are, and how many were missed, is said here: the labelled texts are not covered.",
                "assumed",
            )
        )
    return rows


def _selective_assumptions(config: RunConfig) -> list[tuple[str, Any]]:
    """What a run on marked text may say of private tokens alone, and what that rests on."""
    account = run_account(config)
    if account is None:
        return []
    return [
        ("Epsilon is infinite: public tokens of private records are trained on without noise.", "proved"),
        (f"Of the tokens that the policy marks, and of no others, {account.sentence}.", "proved"),
        ("The policy marks every secret, and what it marks does not depend on the private tokens.", "assumed"),
    ]


def _adaptive_assumptions(config: RunConfig) -> list[tuple[str, Any]]:
    """What epsilon as a function of rho rests on."""
    options = config.adaptive
    if options is None or options.form == "literal":
        return []
    alone = "alone" if bands_from(config) == "unit" else "and of what was released before it was scored"
    rows: list[tuple[str, Any]] = [
        (f"Which phases a unit takes part in, and where it is clipped, is a function of that unit {alone}.", "proved"),
        (
            "Scores on this machine are a function of their text to the last bit, as was tried before they were used.",
            "measured",
        ),
        (
            "Thresholds, weights, shares and the constants of rho were chosen without looking at the private text.",
            "assumed",
        ),
    ]
    return rows


def _start_assumptions(start: dict[str, Any]) -> list[tuple[str, Any]]:
    """Where the run began, as its certificate says."""
    ancestors = {ancestor["head"]: ancestor for ancestor in start["ancestors"]}
    rows = [row for given in start["given"] for row in _of_given(given, ancestors, start["same_people"])]
    if ancestors:
        rows.append((GENUINE, "assumed"))
    if has_others_weights(start):
        rows.append((HONEST_WEIGHTS, "assumed"))
    if has_others_programs(start):
        rows.append((HONEST_PROGRAMS, "assumed"))
    return rows


def _of_given(given: dict[str, Any], ancestors: dict[str, Any], same_people: bool) -> list[tuple[str, Any]]:
    """One thing that the run was given, or one that a release behind it was given."""
    what = given["role"]
    if given["given_to"] in ancestors:
        what = f"{what} of the release {given['given_to'][:12]}"
    what = what[0].upper() + what[1:]
    ancestor = ancestors.get(given["origin"])
    if ancestor is not None:
        release = f"{what} is of the release {given['origin'][:12]}"
        if not ancestor["spends"]:
            return [(f"{release}, which itself read no private text, as its certificate says.", "assumed")]
        if same_people:
            unit = ancestor["unit"]
            return [
                (f"{release}. What that spent on the same people is in this ledger, and in epsilon.", "proved"),
                (
                    f"What is one {unit} here is one whole {unit} of the text behind that release, or none of it.",
                    "assumed",
                ),
            ]
        return [(f"{release}. Nobody whose text went into that is in this text (same_people: false).", "assumed")]
    if given["origin"] == UNKNOWN and not same_people:
        return [
            (f"{what}: nothing is known of it but that nobody of this text is in its (same_people: false).", "assumed")
        ]
    if given["origin"] == UNKNOWN:
        return [(f"{what}: nothing is known of the text that it was made from, so epsilon is infinite.", "heuristic")]
    return [(f"{what} is public; were it made from the private text, what it gives away is not counted.", "assumed")]
