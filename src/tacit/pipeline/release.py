"""What leaves a run: the released folder, the certificate and the report, from the ledger and from released values only.

It goes to run/release by `tacit.release.writing`. Its inputs are the trained model (post-processing of ledger entries), the
tokenizer (likewise), the noisy evaluation, and what public attacks (`tacit.audit.attack`) find in the released model. The control
without DP and the curator's attacks go into the curator's copy in run/private alone (`tacit.pipeline.pages`).
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tacit.files import atomic_folder, write_json
from tacit.models.adapters import save_adapted
from tacit.models.kinds import save_model
from tacit.pipeline.opening import training_noise
from tacit.pipeline.pages import FIGURES, figures_digest, write_report
from tacit.pipeline.state import RunState
from tacit.planning import PUBLIC_KEY
from tacit.planning.confidentiality import run_statement
from tacit.privacy.certificate import file_digests, make_certificate, run_randomness
from tacit.privacy.origin import mark_released
from tacit.privacy.precision import precision_words
from tacit.privacy.provenance import START, Provenance
from tacit.release.writing import is_released, refuse_unpaid, write_release
from tacit.runs.stages import RELEASE, Stage, always
from tacit.vocabulary.tokenizer import save_tokenizer

__all__ = ["STAGE", "leave_model", "release_run"]


def release_run(state: RunState) -> None:
    """Write run/release as a whole. Of what is the curator's alone (the control, its attacks) nothing can stop it."""
    _pay_for_the_key(state)
    state.reporter.say("Release: model, certificate and report ...")

    def certify(digests: dict[str, str]) -> dict[str, Any]:
        state.ledger.bind(FIGURES, figures_digest(state.config, state.folder))
        statement = run_statement(state.config, state.ledger)
        stated = None if statement is None else statement.to_dict()
        return make_certificate(state.ledger, digests, _randomness(state), stated)

    def write_pages(folder: Path, certificate: dict[str, Any]) -> None:
        write_report(state.config, state.folder, state.ledger, certificate, folder)

    write_release(state.folder.release, state.ledger, lambda folder: _write_model(state, folder), certify, write_pages)


STAGE = Stage(RELEASE, always, lambda state: is_released(state.folder, state.ledger), release_run)


def leave_model(state: RunState, folder: Path) -> None:
    """The trained model as a release has it, with its certificate in the same folder: for other runs of an experiment.

    Raises:
        LedgerError: the ledger does not hold all that was planned.
    """
    _pay_for_the_key(state)
    refuse_unpaid(state.ledger, state.folder.root)
    with atomic_folder(folder) as partial:
        _write_model(state, partial)
        digests = {f"model/{name}": digest for name, digest in file_digests(partial).items()}
        write_json(partial / "certificate.json", make_certificate(state.ledger, digests, _randomness(state)))


def _pay_for_the_key(state: RunState) -> None:
    """What a public key costs is paid when something leaves the run."""
    if PUBLIC_KEY in state.ledger.plans:
        state.ledger.charge(PUBLIC_KEY)


def _randomness(state: RunState) -> str:
    config = state.config
    return run_randomness(training_noise(config), config.seed is not None) + precision_words(state.ledger)


def _write_model(state: RunState, folder: Path) -> None:
    options, model = state.config.model, state.trained_model(state.mechanisms.phases[-1].name)
    if options.adapter is None:
        save_model(model, folder)
    else:
        save_adapted(model, options.adapter, _name_of(options.resolved_folder), folder)
    save_tokenizer(state.tokenizer, folder, state.config.model.length, state.special_names, state.chat_template)
    start = state.ledger.bound(START)
    began_public = start is None or Provenance.from_dict(json.loads(start)).is_public
    if state.ledger.plans or not began_public:
        mark_released(folder, state.ledger.rows[0].digest)
    (folder / "generation_config.json").unlink(missing_ok=True)


def _name_of(folder: Path) -> str:
    """What a model's folder is called: of a release of ours the run's name, since all of these are called "model"."""
    parts = folder.absolute().parts
    return next((part for part in reversed(parts) if part not in ("model", "release")), folder.name)
