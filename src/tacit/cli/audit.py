"""`tacit audit`: attack a run's release with its planted canaries, and with its own texts where the run asks for that."""

from __future__ import annotations

import secrets
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tacit.cli.options import JsonOption, RunArgument, print_json, table
from tacit.errors import AuditError, UsageError

if TYPE_CHECKING:
    from tacit.audit.exposure import Exposure
    from tacit.audit.inference import Attack, Estimate
    from tacit.audit.membership import MembershipReport
    from tacit.audit.vocabulary import PlantedWords

__all__ = ["command"]

_MORE_TEXTS = "in a new run, lower audit.membership.group_size or raise evaluation.held_out"
_PLANTED = 2000
"""Words that are planted for each number of copies."""


VocabularyOption = Annotated[
    bool, typer.Option("--vocabulary", help="Plant words in the run's choice of a vocabulary instead.")
]


def command(run: RunArgument, as_json: JsonOption = False, vocabulary: VocabularyOption = False) -> None:
    """Measure the exposure of the planted canaries again, and membership inference (curator's view: not for publication).

    Of both, only the released model's exposures may be shown to others. Exit code 5 when a pattern of the released model is
    exposed beyond `audit.max_exposure_p_value`. With --vocabulary no private text is read: made-up words go through the run's
    mechanism; exit code 5 when they come out more often than its law allows.
    """
    if vocabulary:
        _audit_vocabulary(run, as_json)
        return
    from dataclasses import asdict

    from tacit.folder import RunFolder
    from tacit.pipeline.attacks import check_audit_gate, measure_exposures, membership
    from tacit.pipeline.opening import open_run
    from tacit.pipeline.stages import walk

    config = RunFolder(run).load_config()
    if config.audit is None:
        raise UsageError(f"{run}: no canaries were planted; add `audit:` to the configuration of a new run")
    config = config.model_copy(update={"run": str(run)})
    with open_run(config) as state:
        walk(state, until="control")
        found = measure_exposures(state)  # the report of the release stays with what its stage found
        attacked = membership(state)
        if as_json:
            exposures = {name: [asdict(row) for row in rows] for name, rows in found.items()}
            reports = {"membership": attacked.to_dict()} if attacked.to_dict() else {}
            print_json({**exposures, **reports})
        else:
            typer.echo(_exposure_table(found))
            if attacked.undecided is not None:
                typer.echo(f"\nmembership is {attacked.undecided}; {_MORE_TEXTS}")
            elif attacked.reports:
                typer.echo()
                typer.echo(_membership_table(attacked.reports))
                typer.echo("membership is measured on private texts and covered by no certificate: do not publish it")
        check_audit_gate(state, found)


def _audit_vocabulary(run: Path, as_json: bool) -> None:
    from dataclasses import asdict

    from tacit.audit.vocabulary import plant_words, planted_copies
    from tacit.folder import RunFolder
    from tacit.privacy.ledger import Ledger
    from tacit.randomness import Streams

    with Ledger.open(RunFolder(run).ledger, readonly=True) as ledger:
        events = {name: choice for name, plan in ledger.plans.items() if (choice := plan.event.choice) is not None}
    if not events:
        raise UsageError(f"{run}: no words are chosen from private text there, so there is nothing to plant them in")
    found = [
        (name, plant_words(event, copies, words, _PLANTED // words + 1, Streams(secrets.token_bytes(32))))
        for name, event in events.items()
        for words in sorted({1, event.max_words})
        for copies in planted_copies(event, words)
    ]
    if as_json:
        print_json([{"stage": name, **asdict(row), "exceeds": row.exceeds} for name, row in found])
    else:
        typer.echo(_planted_table(found))
    if any(row.exceeds for _, row in found):
        raise AuditError("audit: planted words come out more often than the law allows; do not publish this release")


def _planted_table(found: list[tuple[str, PlantedWords]]) -> str:
    headers = ["stage", "units", "words each", "planted", "came out", "99.9 % interval", "allowed", "p-value"]
    return table(
        headers,
        [
            [
                name,
                *(str(number) for number in (row.copies, row.words, row.trials, row.shown)),
                f"{row.low:.3g} to {row.high:.3g}",
                f"{row.allowed:.3g}",
                f"{row.p_value:.2g}",
            ]
            for name, row in found
        ],
    )


def _exposure_table(found: dict[str, list[Exposure]]) -> str:
    headers = ["model", "pattern", "canaries", "exposure (bits)", "null", "p-value", "ceiling"]
    rows: list[list[str]] = []
    for name, exposures in found.items():
        for row in exposures:
            numbers = [f"{row.bits:.2f}", f"{row.null_bits:.2f}", f"{row.p_value:.2g}", f"{row.ceiling_bits:.1f}"]
            if row.max_bits is None:
                rows.append([name, row.pattern, str(row.canaries), *numbers])
                continue
            highest = [f"{row.max_bits:.2f}", f"{row.null_max_bits:.2f}", f"{row.max_p_value:.2g}", numbers[-1]]
            rows.append([name, row.pattern, f"mean of {row.canaries}", *numbers])
            rows.append([name, row.pattern, f"highest of {row.canaries}", *highest])
    return table(headers, rows)


def _membership_table(found: dict[str, MembershipReport]) -> str:
    headers = ["model", "members", "accuracy", "95 % interval", "AUC", "TPR at 1 % FPR", "accuracy without a model"]
    rows: list[list[str]] = []
    for name, report in found.items():
        attacks: list[tuple[str, Attack, Estimate]] = [
            ("texts", report.single, report.single_blind.accuracy),
            (f"groups of {report.group_size}", report.group, report.group_blind.accuracy),
        ]
        for kind, attack, blind in attacks:
            rows.append(
                [
                    name,
                    f"{attack.members} {kind}",
                    f"{attack.accuracy.value:.3f}",
                    f"{attack.accuracy.low:.3f} to {attack.accuracy.high:.3f}",
                    f"{attack.auc.value:.3f}",
                    "-" if attack.tpr is None else f"{attack.tpr.value:.3f}",
                    f"{blind.value:.3f} ({blind.low:.3f} to {blind.high:.3f})",
                ]
            )
    return table(headers, rows)
