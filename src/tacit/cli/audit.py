"""`tacit audit`: attack a run's release with its planted canaries."""

from __future__ import annotations

import typer

from tacit.cli.options import JsonOption, RunArgument, print_json, table
from tacit.errors import UsageError

__all__ = ["command"]


def command(run: RunArgument, as_json: JsonOption = False) -> None:
    """Measure the exposure of the planted canaries again (curator's view: the control's rows are not for publication).

    Exit code 5 when a pattern of the released model is exposed beyond `audit.max_exposure_p_value`.
    """
    from dataclasses import asdict

    from tacit import pipeline
    from tacit.folder import RunFolder
    from tacit.opening import open_run

    config = RunFolder(run).load_config()
    if config.audit is None:
        raise UsageError(f"{run}: no canaries were planted; add `audit:` to the configuration of a new run")
    config = config.model_copy(update={"run": str(run)})
    with open_run(config) as state:
        found = pipeline.audit(state)
        if as_json:
            print_json({name: [asdict(row) for row in rows] for name, rows in found.items()})
        else:
            rows = [
                [
                    name,
                    row.pattern,
                    str(row.canaries),
                    f"{row.bits:.2f}",
                    f"{row.null_bits:.2f}",
                    f"{row.p_value:.2g}",
                    f"{row.ceiling_bits:.1f}",
                ]
                for name, exposures in found.items()
                for row in exposures
            ]
            typer.echo(table(["model", "pattern", "canaries", "exposure (bits)", "null", "p-value", "ceiling"], rows))
        pipeline.check_audit_gate(state, found)
