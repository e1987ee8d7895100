"""tacit trains language models on text that must not leak, and says provably what the released model can reveal.

import tacit

result = tacit.run("recipes/clinical-bert.yaml")
print(result.statement)
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tacit.errors import TacitError
from tacit.version import VERSION

if TYPE_CHECKING:
    from tacit.config import RunConfig
    from tacit.pipeline.result import RunResult
    from tacit.planning import RunPlan

__all__ = ["TacitError", "__version__", "plan", "run"]

__version__ = VERSION


def plan(config: str | Path | Mapping[str, Any]) -> RunPlan:
    """What a configuration will spend, from the configuration alone (no torch; of the data only whether it is there).

    Args:
        config: a YAML file, or its values as a dictionary.

    Raises:
        TacitError: see tacit.errors.
    """
    from tacit.planning import plan_and_look

    options = _options(config)
    if options.audit is not None and options.audit.attacks:  # their options are their own, and they import torch
        from tacit.audit.attacks import check_attacks

        check_attacks(options)
    return plan_and_look(options)


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


def _options(config: str | Path | Mapping[str, Any]) -> RunConfig:
    from tacit.config import load_config, parse_config

    return load_config(Path(config)) if isinstance(config, str | Path) else parse_config(dict(config))
