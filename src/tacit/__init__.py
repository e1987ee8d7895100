"""tacit trains language models on text that must not leak, and says provably what the released model can reveal.

import tacit

result = tacit.run("recipes/clinical-bert.yaml")
print(result.statement)
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from tacit.errors import TacitError
from tacit.version import VERSION

if TYPE_CHECKING:
    from tacit.pipeline.result import RunResult
    from tacit.planning import RunPlan

__all__ = ["TacitError", "__version__", "plan", "run"]

__version__ = VERSION


def plan(config: str | Path) -> RunPlan:
    """What a configuration will spend, from the configuration alone (no data, no torch).

    Raises:
        TacitError: see tacit.errors.
    """
    from tacit.config import load_config
    from tacit.planning import make_plan

    options = load_config(Path(config))
    if options.audit is not None and options.audit.attacks:  # their options are their own, and they import torch
        from tacit.audit.attacks import check_attacks

        check_attacks(options)
    return make_plan(options)


def run(config: str | Path) -> RunResult:
    """Run a configuration from text to report, or continue it; shows progress on standard error.

    Raises:
        TacitError: see tacit.errors.
    """
    from tacit.config import load_config
    from tacit.pipeline.stages import run as run_config
    from tacit.progress import TerminalReporter

    return run_config(load_config(Path(config)), TerminalReporter())
