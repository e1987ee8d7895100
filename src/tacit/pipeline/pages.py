"""The report of a run: written when it is released, for the curator, and again from what a finished run left.

It is made from ledger entries and released values only. The control without DP and the curator's attacks go into the curator's copy
in run/private alone.
"""

from __future__ import annotations

import hashlib
import json
import math
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tacit.audit.attack import RELEASED, Found, shown
from tacit.audit.attacks import asked_attacks, check_attacks
from tacit.config import RunConfig
from tacit.config.adapter import ADAPTER_FILE
from tacit.config.shape import ModelShape, folder_shape, shape_of, tensor_shapes
from tacit.errors import LedgerError, UsageError
from tacit.files import private_folder, read_result
from tacit.pipeline.attack_files import stored_attacks
from tacit.privacy.certificate_file import read_certificate
from tacit.privacy.ledger import Ledger
from tacit.release.verification import verify_statements
from tacit.release.writing import write_pages_again
from tacit.report.build import CARD, build_report
from tacit.report.collect import report_data
from tacit.report.collect.utility import RELEASED_SCORES
from tacit.runs.folder import RunFolder
from tacit.runs.stages import Stage, always

if TYPE_CHECKING:
    from tacit.pipeline.state import RunState

__all__ = ["FIGURES", "STAGE", "figures_digest", "is_reported", "report_run", "report_to_curator", "write_report"]

FIGURES = "the figures of the report"
"""Under this name the ledger has `figures_digest`."""


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
            write_report(config, folder, ledger, certificate, target)

        write_pages_again(folder.release, ledger, certificate, write_pages)
        write_pages(_curators(folder), certificate)
    return folder.release / "report.html"


def is_reported(state: RunState) -> bool:
    """Whether the curator's copy of the report is there."""
    return (_curators(state.folder) / CARD).exists()  # it is written last


def report_to_curator(state: RunState) -> None:
    """Write the curator's copy of the report to run/private/report: with the control and the curator's attacks."""
    certificate = read_certificate(state.folder.certificate)
    write_report(state.config, state.folder, state.ledger, certificate, _curators(state.folder))


STAGE = Stage("report", always, is_reported, report_to_curator)


def write_report(
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


def figures_digest(config: RunConfig, folder: RunFolder) -> str:
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
    if figures_digest(config, folder) != ledger.bound(FIGURES):
        raise LedgerError(
            f"{folder.private}: evaluation.json, audit.json, another attack's file or the vocabulary there is not what the release "
            "was made with, or an older version made it; bring them back"
        )


def _released_words(folder: RunFolder) -> int:
    """Words that the private text brought into the vocabulary."""
    words = folder.private / "vocabulary"
    chosen = words / "chosen.json"  # of the words in released.json, those that the private text brought
    return len(read_result(chosen if chosen.exists() else words / "released.json"))


def _curators(folder: RunFolder) -> Path:
    return folder.private / "report"


def _released_shape(config: RunConfig, model: Path) -> ModelShape:
    """The shape of the released model; an adapter that is released alone has that of the model which it stands beside."""
    adapter = config.model.adapter
    alone = adapter is not None and not adapter.merge
    return shape_of(config.model) if alone else folder_shape(model, config.model.kind)


def _numbers_in(file: Path) -> int:
    return sum(math.prod(shape) for shape in tensor_shapes(file).values())
