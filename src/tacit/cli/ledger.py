"""`tacit ledger`: every release of a run."""

from __future__ import annotations

import typer

from tacit.cli.options import JsonOption, RunArgument, print_json, say, say_lines, table
from tacit.privacy.rounded import upper

__all__ = ["command"]


def command(run: RunArgument, as_json: JsonOption = False) -> None:
    """Show the ledger of a run: what was promised, planned and spent."""
    from tacit.privacy.accounting.accountant import epsilon, joint_epsilon
    from tacit.privacy.events import Spend, event_to_dict
    from tacit.privacy.ledger import Ledger
    from tacit.runs.folder import RunFolder

    with Ledger.open(RunFolder(run).ledger, readonly=True) as ledger:
        header = ledger.header
        stages = []
        for plan in ledger.plans.values():
            spent = ledger.spent(plan.stage)
            alone = epsilon([Spend(plan.event, spent, plan.partition)], header.delta, header.relation) if spent else 0.0
            stages.append(
                {
                    "stage": plan.stage,
                    "partition": plan.partition,
                    "event": event_to_dict(plan.event),
                    "spent": spent,
                    "planned": plan.limit,
                    "epsilon_alone": alone,
                }
            )
        joint = joint_epsilon(ledger.spends(), header.delta, header.relation)
        values = {
            "unit": header.unit,
            "relation": header.relation,
            "units": header.units,
            "delta": header.delta,
            "budget_epsilon": header.epsilon,
            "epsilon": joint,
            "stages": stages,
            "rows": len(ledger.rows),
            "head": ledger.certified_head,
        }
    if as_json:
        print_json(values)
        return
    rows = [
        [
            stage["stage"],
            stage["event"]["kind"],
            f"{stage['spent']}/{stage['planned']}",
            upper(stage["epsilon_alone"], ".3f"),
            stage["partition"],
        ]
        for stage in stages
    ]
    say_lines(table(["stage", "event", "spent", "epsilon alone", "on"], rows))
    typer.echo()
    say(
        f"unit {header.unit}, neighbours {header.relation}: joint epsilon {upper(joint, '.4f')} of {header.epsilon:g} "
        f"at delta {upper(header.delta)}"
    )
    say(f"chain intact: {len(ledger.rows)} rows, head {ledger.certified_head}")
