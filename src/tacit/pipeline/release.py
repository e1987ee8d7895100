"""What leaves a run: the released folder, the certificate and the report, from the ledger and from released values only.

This is the only module that writes to run/release. Its inputs are the trained model (post-processing of ledger entries), the
tokenizer (likewise), the noisy evaluation, and the exposure of keyed canaries under the released model. The control without DP and
the membership attack go into the curator's copy in run/private alone.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math
import shutil
from pathlib import Path
from typing import Any

from tacit.audit.exposure import Exposure
from tacit.config import RunConfig, TupleUnit
from tacit.config.shape import folder_shape
from tacit.engine.distributed import ALONE, Ranks
from tacit.errors import LedgerError, UsageError
from tacit.facts import report_data
from tacit.facts.guarantee import confidentiality_lines, missed_shares
from tacit.facts.utility import RELEASED_SCORES
from tacit.files import atomic_folder, private_folder, read_json, write_json
from tacit.folder import RunFolder
from tacit.manifest import finish_release
from tacit.models.kinds import save_model
from tacit.pipeline.attacks import audit, check_audit_gate, membership, stored_exposures
from tacit.pipeline.evaluation import evaluate
from tacit.pipeline.opening import open_run, training_noise
from tacit.pipeline.state import RunState
from tacit.planning import PUBLIC_KEY
from tacit.planning.confidentiality import run_statement
from tacit.privacy.certificate import bind_model, file_digests, make_certificate, read_number, run_randomness
from tacit.privacy.certificate_file import read_certificate
from tacit.privacy.ledger import Ledger
from tacit.privacy.origin import mark_released
from tacit.privacy.provenance import START, Provenance
from tacit.privacy.rounded import upper
from tacit.progress import Reporter
from tacit.report import data as facts
from tacit.report.build import CARD, build_report
from tacit.report.card import confidentiality_verdict
from tacit.verification import verify_statements
from tacit.vocabulary.tokenizer import save_tokenizer

__all__ = ["RunResult", "leave_model", "release_run", "report_run", "run"]


class RunResult:
    """A finished run: where it is, and what it guarantees."""

    def __init__(self, folder: RunFolder) -> None:
        self.folder = folder
        self.certificate: dict[str, Any] = read_certificate(folder.release / "certificate.json")

    @property
    def epsilon(self) -> float:
        """The certified epsilon at ``delta``."""
        return read_number(self.certificate["epsilons"][0]["epsilon"])

    @property
    def delta(self) -> float:
        """The certified delta."""
        return float(self.certificate["epsilons"][0]["delta"])

    @property
    def statement(self) -> str:
        """One paragraph: what is guaranteed, for whom, and where the report is."""
        unit, pieces = self.certificate["unit"], self.folder.load_config().privacy.unit
        cut = f" A {unit} is {pieces.description}." if isinstance(pieces, TupleUnit) else ""
        report = self.folder.release / "report.html"
        if "confidentiality" in self.certificate:
            lines, shares = confidentiality_lines(self.certificate), missed_shares(self.certificate)
            said = confidentiality_verdict(lines, shares)
            return (
                f"{said.headline}. {said.paragraph} `tacit confidentiality {self.folder.root}` says all of it. The report is "
                f"{report}."
            )
        if self.certificate["status"] != "proved":
            return (
                "No guarantee: a heuristic was allowed, so epsilon is infinite. Treat the released files as you would treat the "
                f"private text itself. The report is {report}."
            )
        change = "added to or removed from" if self.certificate["relation"] == "add-or-remove" else "replaced in"
        even_odds = math.ceil(500 * (1 + float(self.certificate["total_variation"]))) / 10
        epsilon = upper(self.epsilon, ".2f")
        return (
            f"Guaranteed for every {unit} of the private text: when all that one {unit} wrote is {change} the corpus, the "
            f"probability of anything that can be seen in {self.folder.release} changes by at most a factor of "
            f"e^{epsilon}, give or take {self.delta:g} (differential privacy with epsilon {epsilon}). "
            f"Someone who gives even odds that a given {unit} is in the corpus guesses right at most {even_odds:.1f} % of "
            f"the time with the release in hand. It does not protect what several {unit}s have in common.{cut} "
            f"The report is {report}; `tacit verify {self.folder.root}` recomputes the certificate."
        )


def run(config: RunConfig, reporter: Reporter | None = None, ranks: Ranks = ALONE) -> RunResult:
    """All stages from text to report; calling it again continues a run that was stopped, and a finished run is left as it is.

    With several ranks the first one calls this, and the others `assist` it (`tacit.pipeline`).

    Raises:
        TacitError: see the members in tacit.errors; what is already spent stays in the ledger.
    """
    with open_run(config, reporter, ranks) as state:
        if (state.folder.release / "certificate.json").exists():
            found = stored_exposures(state.folder)
        else:
            evaluate(state)
            found = audit(state)
            membership(state)
            release_run(state, found)
        if not (_curators(state.folder) / CARD).exists():  # it is written last
            certificate = read_certificate(state.folder.release / "certificate.json")
            _write_report(state.config, state.folder, state.ledger, certificate, found, _curators(state.folder))
        check_audit_gate(state, found)
        return RunResult(state.folder)


def release_run(state: RunState, exposures: dict[str, list[Exposure]]) -> None:
    """Write run/release as a whole. Of what is the curator's alone (the control, membership inference) nothing can stop it."""
    _pay_the_rest(state)
    state.reporter.say("Release: model, certificate and report ...")
    with atomic_folder(state.folder.release) as folder:
        _write_model(state, folder / "model")
        bind_model(state.ledger, folder)
        state.ledger.bind(_FIGURES, _figures_digest(state.folder))
        statement = run_statement(state.config, state.ledger)
        certificate = make_certificate(
            state.ledger,
            file_digests(folder),
            run_randomness(training_noise(state.config), state.config.seed is not None),
            None if statement is None else statement.to_dict(),
        )
        write_json(folder / "certificate.json", certificate)
        _write_report(state.config, state.folder, state.ledger, certificate, exposures, folder)
        finish_release(state.ledger, folder)


def leave_model(state: RunState, folder: Path) -> None:
    """The trained model as a release has it, with its certificate in the same folder: for other runs of an experiment.

    Raises:
        LedgerError: the ledger does not hold all that was planned.
    """
    _pay_the_rest(state)
    with atomic_folder(folder) as partial:
        _write_model(state, partial)
        digests = {f"model/{name}": digest for name, digest in file_digests(partial).items()}
        randomness = run_randomness(training_noise(state.config), state.config.seed is not None)
        write_json(partial / "certificate.json", make_certificate(state.ledger, digests, randomness))


def _pay_the_rest(state: RunState) -> None:
    """What a public key costs is paid when something leaves the run; all else must be paid by then."""
    if PUBLIC_KEY in state.ledger.plans:
        state.ledger.charge(PUBLIC_KEY)
    unpaid = [plan.stage for plan in state.ledger.plans.values() if state.ledger.spent(plan.stage) != plan.limit]
    if unpaid:
        raise LedgerError(
            f"{state.folder.root}: the ledger does not hold all of {', '.join(unpaid)}; nothing is released"
        )


def report_run(folder: RunFolder) -> Path:
    """Build the report of a finished run again from its certificate, ledger and released values, with a new manifest.

    Raises:
        UsageError: the run has not finished, or is in use.
        LedgerError: certificate, model or ledger are not as they were released, something is in the release that does not belong
            there, or what the report shows is not what it was made with.
    """
    config = folder.load_config()
    if not (folder.release / "certificate.json").is_file():
        raise UsageError(f"{folder.root}: the run has not finished; `tacit run CONFIG` continues it")
    exposures = stored_exposures(folder)
    certificate = read_certificate(folder.release / "certificate.json")
    with folder.alone(), Ledger.open(folder.ledger) as ledger:
        _refuse_other_figures(config, folder, ledger)
        wrong = [check.name for check in verify_statements(folder, ledger, certificate) if not check.holds]
        if wrong:  # a new manifest would vouch for it
            raise LedgerError(f"{folder.release}: not as it was released ({', '.join(wrong)}); bring it back")
        for partial in folder.release.glob(".*.partial"):  # of a `tacit report` that was killed
            partial.unlink()
        _write_report(config, folder, ledger, certificate, exposures, folder.release)
        finish_release(ledger, folder.release)
        _write_report(config, folder, ledger, certificate, exposures, _curators(folder))
    return folder.release / "report.html"


_FIGURES = "the figures of the report"


def _figures_digest(folder: RunFolder) -> str:
    """SHA-256 of what a release's report shows beside the certificate and the ledger; all of it is released."""
    evaluation = read_json(folder.private / "evaluation.json")
    figures = {
        "evaluation": {name: evaluation[name] for name in RELEASED_SCORES if name in evaluation},
        "exposures": [dataclasses.asdict(row) for row in stored_exposures(folder).get(facts.RELEASED, [])],
        "released_words": _released_words(folder),
    }
    return hashlib.sha256(json.dumps(figures, sort_keys=True).encode()).hexdigest()


def _refuse_other_figures(config: RunConfig, folder: RunFolder, ledger: Ledger) -> None:
    if config.digest() != ledger.header.config_digest:
        raise LedgerError(
            f"{folder.root}: the configuration there is not the one that the run was made with; bring it back"
        )
    if _figures_digest(folder) != ledger.bound(_FIGURES):
        raise LedgerError(
            f"{folder.private}: evaluation.json, audit.json or the vocabulary there is not what the release was made with, or an "
            "older version made it; bring them back"
        )


def _released_words(folder: RunFolder) -> int:
    """Words that the private text brought into the vocabulary."""
    words = folder.private / "vocabulary"
    chosen = words / "chosen.json"  # of the words in released.json, those that the private text brought
    return len(read_json(chosen if chosen.exists() else words / "released.json"))


def _stored_membership(config: RunConfig, folder: RunFolder) -> dict[str, Any] | None:
    """The membership attack, for the curator alone; None where none was asked for."""
    wanted = config.audit is not None and config.audit.membership is not None
    path = folder.private / "membership.json"
    return read_json(path) if wanted and path.exists() else None


def _write_model(state: RunState, folder: Path) -> None:
    save_model(state.trained_model(state.mechanisms.phases[-1].name), folder)
    save_tokenizer(state.tokenizer, folder, state.config.model.length, state.special_names)
    start = state.ledger.bound(START)
    began_public = start is None or Provenance.from_dict(json.loads(start)).is_public
    if state.ledger.plans or not began_public:
        mark_released(folder, state.ledger.rows[0].digest)
    (folder / "generation_config.json").unlink(missing_ok=True)


def _curators(folder: RunFolder) -> Path:
    return folder.private / "report"


def _write_report(
    config: RunConfig,
    folder: RunFolder,
    ledger: Ledger,
    certificate: dict[str, Any],
    exposures: dict[str, list[Exposure]],
    target: Path,
) -> None:
    """The report of a release that is being made, or of a finished one; where it goes says whose copy it is."""
    curator = target == _curators(folder)
    evaluation = read_json(folder.private / "evaluation.json")
    shape = folder_shape((folder.release if curator else target) / "model", config.model.kind)
    shown = {name: rows for name, rows in exposures.items() if curator or name == facts.RELEASED}
    attacked = _stored_membership(config, folder) if curator else None
    report = report_data(
        config, folder, ledger, certificate, shown, evaluation, shape, _released_words(folder), curator, attacked
    )
    if curator:
        shutil.rmtree(private_folder(target), ignore_errors=True)
        private_folder(target)
    build_report(report, target)
