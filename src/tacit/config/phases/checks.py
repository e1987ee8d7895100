"""What all phases of a run must be together."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tacit.errors import RefusedError, UsageError

if TYPE_CHECKING:
    from tacit.config.run import RunConfig

__all__ = ["check_phases", "check_streams"]

_OTHER_STAGES = ("vocabulary", "evaluation")
"""Stages of the ledger beside the phases. A name with ``control-`` would share a checkpoint with the control without DP."""


def check_streams(config: RunConfig) -> None:
    """Every phase has text to read, and text without noise is wanted as such."""
    streams = {phase.stream for phase in config.phases}
    for stream in sorted(streams & {"screened", "redacted"} if config.screening is None else ()):
        raise UsageError(
            f"phases: stream: {stream} needs the section `screening`, which says how the private corpus is screened"
        )
    own_words = config.screening is not None or config.marking is not None
    begun = own_words or (config.model.folder is not None and not config.model.new_vocabulary)
    if not config.public and (not begun or "public" in streams):
        raise UsageError(
            "public: name at least one public corpus; a run without screening starts from public text, or from model.folder"
        )
    unclipped = config.unclipped_phases
    if unclipped and "heuristic:non-private" not in config.allow:
        raise RefusedError(
            "private-text-without-noise",
            f"phases: {unclipped[0].name} trains on private text without noise, which has no guarantee; use plan: dp, or add "
            "heuristic:non-private to allow (reported with epsilon = infinity)",
        )


def check_phases(config: RunConfig) -> None:
    """Names are free and distinct, and each phase is one that can run."""
    names = [phase.name for phase in config.phases]
    for name in names:
        if name in _OTHER_STAGES or name.startswith("control-"):
            raise UsageError(f"phases: the name {name!r} is used by the run itself; choose another")
    if len(set(names)) < len(names):
        raise UsageError(f"phases: two phases share a name ({', '.join(names)})")
    for phase in config.phases:
        phase.check(config)
