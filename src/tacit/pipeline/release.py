"""What leaves a run: the released folder, the certificate and the report, from the ledger and from released values only.

It goes to run/release by `tacit.release.writing`. Its inputs are the trained model (post-processing of ledger entries), the
tokenizer (likewise), the noisy evaluation, and what public attacks (`tacit.audit.attack`) find in the released model. The control
without DP and the curator's attacks go into the curator's copy in run/private alone.
"""

from __future__ import annotations

import hashlib
import json
import math
import shutil
from pathlib import Path
from typing import Any

from tacit.audit.attack import RELEASED, Found, shown
from tacit.audit.attacks import asked_attacks, check_attacks
from tacit.config import RunConfig
from tacit.config.shape import ModelShape, folder_shape, shape_of, tensor_shapes
from tacit.errors import LedgerError, UsageError
from tacit.files import atomic_folder, private_folder, read_result, write_json
from tacit.folder import RunFolder
from tacit.models.adapters import ADAPTER_FILE, save_adapted
from tacit.models.kinds import save_model
from tacit.pipeline.attacks import stored_attacks
from tacit.pipeline.opening import training_noise
from tacit.pipeline.state import RunState
from tacit.planning import PUBLIC_KEY
from tacit.planning.confidentiality import run_statement
from tacit.privacy.certificate import file_digests, make_certificate, run_randomness
from tacit.privacy.certificate_file import read_certificate
from tacit.privacy.ledger import Ledger
from tacit.privacy.origin import mark_released
from tacit.privacy.precision import precision_words
from tacit.privacy.provenance import START, Provenance
from tacit.release.verification import verify_statements
from tacit.release.writing import refuse_unpaid, write_pages_again, write_release
from tacit.report.build import CARD, build_report
from tacit.report.collect import report_data
from tacit.report.collect.utility import RELEASED_SCORES
from tacit.vocabulary.tokenizer import save_tokenizer

__all__ = ["is_released", "is_reported", "leave_model", "release_run", "report_run", "report_to_curator"]


def is_released(state: RunState) -> bool:
    """Whether run/release is there, which is written as a whole."""
    return state.folder.is_released


def release_run(state: RunState) -> None:
    """Write run/release as a whole. Of what is the curator's alone (the control, its attacks) nothing can stop it."""
    _pay_for_the_key(state)
    state.reporter.say("Release: model, certificate and report ...")

    def certify(digests: dict[str, str]) -> dict[str, Any]:
        state.ledger.bind(_FIGURES, _figures_digest(state.config, state.folder))
        statement = run_statement(state.config, state.ledger)
        stated = None if statement is None else statement.to_dict()
        return make_certificate(state.ledger, digests, _randomness(state), stated)

    def write_pages(folder: Path, certificate: dict[str, Any]) -> None:
        _write_report(state.config, state.folder, state.ledger, certificate, folder)

    write_release(state.folder.release, state.ledger, lambda folder: _write_model(state, folder), certify, write_pages)


def is_reported(state: RunState) -> bool:
    """Whether the curator's copy of the report is there."""
    return (_curators(state.folder) / CARD).exists()  # it is written last


def report_to_curator(state: RunState) -> None:
    """Write the curator's copy of the report to run/private/report: with the control and the curator's attacks."""
    certificate = read_certificate(state.folder.certificate)
    _write_report(state.config, state.folder, state.ledger, certificate, _curators(state.folder))


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
    return run_randomness(training_noise(config), config.seed is not None, config.grid_phases) + precision_words(
        state.ledger
    )


def report_run(folder: RunFolder) -> Path:
    """Build the report of a finished run again from its certificate, ledger and released values, with a new manifest.

    Raises:
        UsageError: the run has not finished, or is in use.
        LedgerError: certificate, model or ledger are not as they were released, something is in the release that does not belong
            there, or what the report shows is not what it was made with.
    """
    config = folder.load_config()
    if not folder.is_released:
        raise UsageError(f"{folder.root}: the run has not finished; `tacit run CONFIG` continues it")
    check_attacks(config)
    certificate = read_certificate(folder.certificate)
    with folder.alone(), Ledger.open(folder.ledger) as ledger:
        _refuse_other_figures(config, folder, ledger)
        wrong = [check.name for check in verify_statements(folder, ledger, certificate) if not check.holds]
        if wrong:  # a new manifest would vouch for it
            raise LedgerError(f"{folder.release}: not as it was released ({', '.join(wrong)}); bring it back")

        def write_pages(target: Path, certificate: dict[str, Any]) -> None:
            _write_report(config, folder, ledger, certificate, target)

        write_pages_again(folder.release, ledger, certificate, write_pages)
        write_pages(_curators(folder), certificate)
    return folder.release / "report.html"


_FIGURES = "the figures of the report"


def _figures_digest(config: RunConfig, folder: RunFolder) -> str:
    """SHA-256 of what a release's report shows beside the certificate and the ledger; all of it is released."""
    evaluation = read_result(folder.private / "evaluation.json")
    figures = {
        "evaluation": {name: evaluation[name] for name in RELEASED_SCORES if name in evaluation},
        "exposures": [],  # as runs have it in their ledger that were made before there were other public attacks
        **{f"{name}s": values for name, values in _released_values(config, folder).items()},
        "released_words": _released_words(folder),
    }
    return hashlib.sha256(json.dumps(figures, sort_keys=True).encode()).hexdigest()


def _released_values(config: RunConfig, folder: RunFolder) -> dict[str, Any]:
    """What public attacks found in the released model, by attack."""
    found = stored_attacks(config, folder)
    seen = {attack.name: shown(attack, found.get(attack.name, {}), curator=False) for attack in asked_attacks(config)}
    return {name: _values(values) for name, values in seen.items() if values is not None}


def _values(found: Found) -> Any:
    return found.get(RELEASED, found.get("undecided", []))


def _refuse_other_figures(config: RunConfig, folder: RunFolder, ledger: Ledger) -> None:
    if config.digest() != ledger.header.config_digest:
        raise LedgerError(
            f"{folder.root}: the configuration there is not the one that the run was made with; bring it back"
        )
    if _figures_digest(config, folder) != ledger.bound(_FIGURES):
        raise LedgerError(
            f"{folder.private}: evaluation.json, audit.json, another attack's file or the vocabulary there is not what the release "
            "was made with, or an older version made it; bring them back"
        )


def _released_words(folder: RunFolder) -> int:
    """Words that the private text brought into the vocabulary."""
    words = folder.private / "vocabulary"
    chosen = words / "chosen.json"  # of the words in released.json, those that the private text brought
    return len(read_result(chosen if chosen.exists() else words / "released.json"))


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


def _curators(folder: RunFolder) -> Path:
    return folder.private / "report"


def _released_shape(config: RunConfig, model: Path) -> ModelShape:
    """Of the released model; an adapter that is released alone has that of the model which it stands beside."""
    adapter = config.model.adapter
    alone = adapter is not None and not adapter.merge
    return shape_of(config.model) if alone else folder_shape(model, config.model.kind)


def _numbers_in(file: Path) -> int:
    return sum(math.prod(shape) for shape in tensor_shapes(file).values())


def _write_report(
    config: RunConfig,
    folder: RunFolder,
    ledger: Ledger,
    certificate: dict[str, Any],
    target: Path,
) -> None:
    """The report of a release that is being made, or of a finished one; where it goes says whose copy it is."""
    curator = target == _curators(folder)
    evaluation = read_result(folder.private / "evaluation.json")
    model = (folder.release if curator else target) / "model"
    shape = _released_shape(config, model)
    trained = _numbers_in(model / ADAPTER_FILE) if config.model.adapter is not None else 0
    found, words = stored_attacks(config, folder), _released_words(folder)
    report = report_data(config, folder, ledger, certificate, found, evaluation, shape, trained, words, curator)
    if curator:
        shutil.rmtree(private_folder(target), ignore_errors=True)
        private_folder(target)
    build_report(report, target)
