"""The stages `audit` and `membership`: attacks on the released model and, as positive control, on the one without DP."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from transformers import PreTrainedModel

from tacit.audit.candidates import candidate_exposure
from tacit.audit.exposure import Exposure, measure_exposure
from tacit.audit.membership import MembershipReport, measure_membership
from tacit.audit.samples import MembershipSamples
from tacit.audit.scorers import scorer_of
from tacit.audit.trie import Trie, build_trie, score_candidates
from tacit.errors import AuditError, DataError, UsageError
from tacit.files import read_json, write_json
from tacit.folder import RunFolder
from tacit.pipeline.corpus import membership_samples
from tacit.pipeline.membership import TOO_FEW
from tacit.pipeline.records import secret_form, secrets_of
from tacit.pipeline.rows import drawn_canaries, public_held_out_rows
from tacit.pipeline.state import RunState
from tacit.training.checkpoint import load_weights

__all__ = ["Membership", "audit", "check_audit_gate", "measure_exposures", "membership", "stored_exposures"]

_STORED = "audit.json"


def audit(state: RunState) -> None:
    """The stage: what `measure_exposures` finds, written to run/private/audit.json. See `check_audit_gate`."""
    found = measure_exposures(state)
    stored = {name: [dataclasses.asdict(row) for row in rows] for name, rows in found.items()}
    write_json(state.folder.private / _STORED, stored)


def stored_exposures(folder: RunFolder) -> dict[str, list[Exposure]]:
    """What the stage found, by model; nothing where it has not run."""
    path = folder.private / _STORED
    stored = read_json(path) if path.exists() else {}
    return {name: [Exposure(**row) for row in rows] for name, rows in stored.items()}


def measure_exposures(state: RunState) -> dict[str, list[Exposure]]:
    """Exposure of the canaries under the released model and, as a positive control, under the model without DP.

    The canaries are written to run/private/canaries.json.
    """
    options = state.config.audit
    if options is None:
        return {}
    if state.config.model.is_causal:
        return _secrets_exposures(state)
    canaries = drawn_canaries(state)
    write_json(state.folder.private / "canaries.json", [dataclasses.asdict(canary) for canary in canaries])
    models = _audited_models(state)
    contexts = public_held_out_rows(state)
    rows = slice(0, min(options.contexts, contexts.sequences))
    found: dict[str, list[Exposure]] = {}
    for name, path in models.items():
        state.reporter.say(f"Audit: exposure of {len(canaries)} canaries under the {name} ...")
        model = state.new_model()
        load_weights(path, model)
        streams = state.streams.child("audit")
        found[name] = measure_exposure(
            model, canaries, contexts.ids_ST[rows], contexts.lengths_S[rows], state.masking, streams
        )
    return found


def _audited_models(state: RunState) -> dict[str, Path]:
    """Checkpoints of the released model and, where there is one, of the control."""
    last = state.mechanisms.phases[-1].name
    models = {"released model": state.checkpoint(last)}
    if state.config.audit is not None and state.config.audit.control:
        models["control without DP"] = state.checkpoint(f"control-{last}")
    return models


def _secrets_exposures(state: RunState) -> dict[str, list[Exposure]]:
    """Exposure of a causal model's canaries by their exact rank among all candidates: mean and highest over the canaries."""
    form, secrets = secret_form(state.config), secrets_of(state.config, state.streams)
    assert form is not None
    write_json(state.folder.private / "canaries.json", [form.text(secret) for secret in secrets])
    trie = build_trie(state.tokenizer, form)
    found: dict[str, list[Exposure]] = {}
    for name, path in _audited_models(state).items():
        state.reporter.say(f"Audit: exposure of {len(secrets)} secrets among {form.candidates} under the {name} ...")
        model = state.new_model()
        load_weights(path, model)
        model.eval()
        measured = candidate_exposure(_candidate_scores(model, trie, state.special.start), secrets)
        found[name] = [
            Exposure(
                pattern=form.prefix + "d" * form.digits,
                canaries=measured.canaries,
                mean_rank=float(np.mean(measured.ranks)),
                bits=measured.mean_bits,
                null_bits=measured.null_mean_bits,
                p_value=measured.mean_p_value,
                ceiling_bits=measured.ceiling_bits,
                max_bits=measured.max_bits,
                null_max_bits=measured.null_max_bits,
                max_p_value=measured.max_p_value,
            )
        ]
    return found


def _candidate_scores(model: PreTrainedModel, trie: Trie, start: int) -> np.ndarray:
    """Equal scores for a model that diverged, so that its exposure is that of chance: the control must not stop a run."""
    try:
        return score_candidates(scorer_of(model), trie, [start])
    except DataError:
        return np.full(len(trie.node_N), -np.inf)


@dataclass(frozen=True)
class Membership:
    """What membership inference found, for the curator.

    Args:
        reports: by model; empty where nothing was asked for, or nothing could be measured.
        undecided: why nothing could be measured; None where something was, or nothing was asked for.
    """

    reports: dict[str, MembershipReport]
    undecided: str | None = None

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready: each model's report, or why there is none."""
        if self.undecided is not None:
            return {"undecided": self.undecided}
        return {name: dataclasses.asdict(row) for name, row in self.reports.items()}


def membership(state: RunState) -> Membership:
    """Membership inference on the run's own texts, under the released model and, as a positive control, the one without DP.

    A function of private text beside the model, so it is the curator's alone: written to run/private/membership.json, and from there
    to the curator's copy of the report. So is whether there are texts enough: it stops no run and changes no line of its progress.
    """
    options = state.config.audit.membership if state.config.audit else None
    if options is None:
        return Membership({})
    samples = membership_samples(state)  # how many these are is private, and no line says it
    undecided = None if len(samples.members) >= options.least_pairs else TOO_FEW
    reports: dict[str, MembershipReport] = {}
    for name, path in _audited_models(state).items():
        state.reporter.say(f"Audit: membership inference under the {name} ...")  # also where nothing will be measured
        if undecided is not None:
            continue
        model = state.new_model()
        load_weights(path, model)
        try:
            reports[name] = _told_apart(state, model, samples, options.group_size)
        except (DataError, UsageError) as error:  # a text without a token, a loss that is no number
            undecided = f"undecided: {error}"
    found = Membership({} if undecided else reports, undecided)
    write_json(state.folder.private / "membership.json", found.to_dict())
    return found


def _told_apart(
    state: RunState, model: PreTrainedModel, samples: MembershipSamples, group_size: int
) -> MembershipReport:
    streams, special = state.streams.child("membership"), state.special
    length = state.config.model.length
    return measure_membership(
        model, state.tokenizer, samples, [special.start], streams, group_size, [special.end], length
    )


def check_audit_gate(state: RunState, found: dict[str, list[Exposure]]) -> None:
    """Fail when a released pattern's p-value is below the configured gate; mean and highest exposure are one test there."""
    gate = state.config.audit.max_exposure_p_value if state.config.audit else 0.0
    for row in found.get("released model", []):
        if row.gate_p_value < gate:
            highest = "" if row.max_bits is None else f" (the highest of them by {row.max_bits:.2f})"
            raise AuditError(
                f"audit: pattern {row.pattern} is exposed by {row.bits:.2f} bits{highest}, p = {row.gate_p_value:.2g}, below the "
                f"gate {gate:g}; do not publish this release: check the engine and the ledger"
            )
