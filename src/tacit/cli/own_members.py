"""`tacit audit RUN --members FILE --non-members FILE`: what was found, as tables for the curator."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import typer

from tacit.cli.options import print_json, table

if TYPE_CHECKING:
    from tacit.audit.inference import Estimate
    from tacit.audit.own_members import ToldApart
    from tacit.pipeline.own_members import OwnMembers

__all__ = ["show_own_members"]


def show_own_members(run: Path, members: Path, non_members: Path, text_field: str | None, as_json: bool) -> None:
    """Attack the texts of the two files, and print what was found.

    Raises:
        TacitError: as `tacit.pipeline.own_members.attack_own_members`.
    """
    from tacit.pipeline.opening import open_run
    from tacit.pipeline.own_members import attack_own_members, own_source
    from tacit.progress import TerminalReporter
    from tacit.runs.folder import RunFolder

    config = RunFolder(run).load_config().model_copy(update={"run": str(run)})
    sources = [own_source(config, path, text_field) for path in (members, non_members)]
    with open_run(config, TerminalReporter()) as state:
        found = attack_own_members(state, *sources)
    if as_json:
        print_json(found.plain())
    else:
        typer.echo(_shown(found))


def _shown(found: OwnMembers) -> str:
    from tacit.audit.own_members import FALSE_POSITIVE_RATES

    headers = ["model", "members", "non-members", "AUC (95 %)"]
    headers += [f"found at {100 * rate:g} %" for rate in FALSE_POSITIVE_RATES]
    rows = [[name, *_cells(one)] for name, one in found.models.items()]
    apart = found.apart
    if apart.blind is not None:
        rows.append(["without a model", "", "", _estimate(apart.blind.auc), *["-"] * len(FALSE_POSITIVE_RATES)])
    lines = [
        table(headers, rows),
        "",
        f"Verdict: {found.verdict}. Score: {found.score}; low means member.",
        "Found at 1 %: the share of members that are recognised where 1 % of the non-members are taken for members; - where",
        "these are too few for the rate. Without a model: told apart by their characters and length.",
    ]
    if apart.overlap is not None and apart.overlap_within is not None:
        lines.append(
            f"Runs of six words that a half of the members has too: {100 * apart.overlap:.1f} % of the non-members', "
            f"{100 * apart.overlap_within:.1f} % of the other half's."
        )
    if apart.in_both:
        lines.append(f"Members that stand in the other file too: {apart.in_both}.")
    if found.without_tokens:
        lines.append(f"Texts without a token, left out: {found.without_tokens}.")
    lines += [
        "Members and non-members are yours, and no coin chose them: this is no lower bound on epsilon. No certificate covers",
        "it: do not publish it.",
    ]
    return "\n".join(lines)


def _cells(found: ToldApart) -> list[str]:
    rates = ["-" if estimate is None else _estimate(estimate) for _, estimate in found.tpr]
    return [f"{found.members:,}", f"{found.non_members:,}", _estimate(found.auc), *rates]


def _estimate(estimate: Estimate) -> str:
    return f"{estimate.value:.3f} ({estimate.low:.3f} to {estimate.high:.3f})"
