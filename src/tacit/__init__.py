"""tacit trains language models on text that must not leak, and says provably what the released model can reveal.

import tacit

result = tacit.run("recipes/clinical-bert.yaml")
print(result.statement)
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tacit.errors import TacitError
from tacit.version import VERSION

if TYPE_CHECKING:
    from tacit.config import RunConfig
    from tacit.loops.certifying import LoopCertificate
    from tacit.loops.steps import PrivateSteps
    from tacit.pipeline.result import RunResult
    from tacit.planning import RunPlan
    from tacit.planning.own_loop import StepPlan

__all__ = ["PrivateSteps", "StepPlan", "TacitError", "__version__", "certify", "plan", "run"]

__version__ = VERSION


def plan(config: str | Path | Mapping[str, Any]) -> RunPlan:
    """What a configuration will spend, from the configuration alone (no torch; of the data only whether it is there).

    Args:
        config: a YAML file, or its values as a dictionary.

    Raises:
        TacitError: see tacit.errors.
    """
    from tacit.audit.coins_plan import check_coin_names, coin_warnings
    from tacit.planning import plan_and_look

    options = _options(config)
    if options.audit is not None and options.audit.attacks:  # their options are their own, and they import torch
        from tacit.audit.attacks import check_attacks

        check_attacks(options)
    check_coin_names(options)
    planned = plan_and_look(options)
    return dataclasses.replace(
        planned, warnings=(*planned.warnings, *coin_warnings(options, planned.mechanisms.spends()))
    )


def run(config: str | Path | Mapping[str, Any]) -> RunResult:
    """Run a configuration from text to report, or continue it; shows progress on standard error.

    Args:
        config: a YAML file, or its values as a dictionary.

    Raises:
        TacitError: see tacit.errors.
    """
    from tacit.pipeline.stages import run as run_config
    from tacit.progress import TerminalReporter

    return run_config(_options(config), TerminalReporter())


def certify(run: str | Path, model: str | Path, *, forfeit: bool = False) -> LoopCertificate:
    """Certify the model of a training loop of one's own (`PrivateSteps`): it goes to ``RUN/release``, with its certificate.

    No step can be taken after it. `tacit verify RUN` checks the release, and `tacit run` can start from ``RUN/release/model``.

    Args:
        run: the folder of the loop.
        model: a folder with the saved model and its tokenizer and nothing else, as ``save_pretrained`` writes it.
        forfeit: pay for the steps that were not taken; without it all have to be taken.

    Raises:
        UsageError: steps are left; there is a file that neither a model nor a tokenizer has; not the folder of a loop.
        DataError: there is no model; (a LedgerError) the ledger is missing or damaged, or another model was certified before.
    """
    from tacit.loops.certifying import certify_loop
    from tacit.runs.folder import RunFolder

    return certify_loop(RunFolder(Path(run)), Path(model), forfeit)


def __getattr__(name: str) -> Any:
    """The classes for a training loop of one's own, which are loaded when they are used: the first needs torch."""
    if name == "PrivateSteps":
        from tacit.loops.steps import PrivateSteps

        return PrivateSteps
    if name == "StepPlan":
        from tacit.planning.own_loop import StepPlan

        return StepPlan
    raise AttributeError(f"module 'tacit' has no attribute {name!r}")


def _options(config: str | Path | Mapping[str, Any]) -> RunConfig:
    from tacit.config import load_config, parse_config

    return load_config(Path(config)) if isinstance(config, str | Path) else parse_config(dict(config))
