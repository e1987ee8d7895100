"""From a finished loop of one's own and its saved model to ``FOLDER/release``, with a certificate. Needs no torch."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from tacit.errors import DataError, LedgerError, RefusedError, UsageError
from tacit.files import refuse_pipes, write_json
from tacit.loops.folder import read_plan, refuse_other_folders
from tacit.planning.own_loop import STAGE, StepPlan, loop_randomness, loop_statement
from tacit.privacy.certificate import make_certificate
from tacit.privacy.certificate_file import read_certificate
from tacit.privacy.ledger import Ledger
from tacit.privacy.origin import carries_mark, certificate_of, mark_released
from tacit.privacy.provenance import NOISE_SOURCE
from tacit.privacy.rounded import upper
from tacit.privacy.strict_json import read_number, read_strict
from tacit.release.writing import write_release
from tacit.runs.folder import RunFolder, taken

__all__ = ["LoopCertificate", "certify_loop"]

_MOST_BYTES = 1 << 20

_WEIGHTS = ".safetensors"
_NAMES = frozenset(
    {
        *("config.json", "generation_config.json", "adapter_config.json", "model.safetensors.index.json"),
        *(
            "tokenizer.json",
            "tokenizer_config.json",
            "special_tokens_map.json",
            "added_tokens.json",
            "chat_template.jinja",
        ),
        *("vocab.json", "vocab.txt", "merges.txt", "tokenizer.model", "spiece.model", "sentencepiece.bpe.model"),
    }
)
"""Beside the weights, what a model and its tokenizer are made of; a trainer's own files may hold losses of private text."""


@dataclass(frozen=True)
class LoopCertificate:
    """What `tacit.certify` has certified.

    Args:
        release: the folder to publish.
        epsilon, delta, unit: of the guarantee.
        statement: it in words.
        assumptions: what it rests on and no program can check.
    """

    release: Path
    epsilon: float
    delta: float
    unit: str
    statement: str
    assumptions: tuple[str, ...]


def certify_loop(folder: RunFolder, model: Path, forfeit: bool) -> LoopCertificate:
    """Certify the model of a loop; see `tacit.certify`."""
    refuse_other_folders(folder)
    plan = read_plan(folder)
    files = _files_of(model)
    _refuse_released(model)
    with taken(folder), Ledger.open(folder.ledger) as ledger:
        _check_ledger(folder, plan, ledger)
        _pay_all(folder, plan, ledger, forfeit)
        mark = ledger.rows[0].digest

        def write_model(target: Path) -> None:
            target.mkdir()
            for file in files:
                shutil.copyfile(file, target / file.name)
            _name_base(target / "adapter_config.json")
            mark_released(target, mark)

        def certify(digests: dict[str, str]) -> dict[str, Any]:
            certificate = make_certificate(ledger, digests, loop_randomness(ledger.bound(NOISE_SOURCE) or ""))
            return {**certificate, "own_loop": loop_statement(plan, read_number(certificate["epsilons"][0]["epsilon"]))}

        write_release(folder.release, ledger, write_model, certify, lambda target, stated: _write_page(target, stated))
        certificate = read_certificate(folder.certificate)
    own = certificate["own_loop"]
    epsilon = read_number(certificate["epsilons"][0]["epsilon"])
    return LoopCertificate(folder.release, epsilon, plan.delta, plan.unit, own["statement"], tuple(own["assumptions"]))


def _files_of(model: Path) -> list[Path]:
    """The files of a saved model, each of a name that a release may have."""
    if not model.is_dir():
        raise DataError(f"{model}: no folder there; save the model first, such as by model.save_pretrained")
    refuse_pipes(model)
    found = sorted(model.iterdir())
    for path in found:
        name = PurePosixPath(path.name)
        if path.is_symlink() or not path.is_file() or (name.suffix != _WEIGHTS and path.name not in _NAMES):
            raise UsageError(
                f"{model}: {ascii(path.name)[1:-1]} is neither weights in safetensors nor one of the files that a model and its "
                "tokenizer have; it might show private values: save the model alone into a folder of its own"
            )
    if not any(path.suffix == _WEIGHTS for path in found):
        raise DataError(f"{model}: no weights in safetensors there; save the model first")
    return found


def _refuse_released(model: Path) -> None:
    """A model that another ledger has paid for is not certified by this one, whatever the loop has trained of it."""
    if certificate_of(model) is not None or carries_mark(model):
        raise RefusedError(
            "start-without-certificate",
            f"{model} was released by tacit from private text, which the ledger of this loop does not know; certify a model that the "
            "loop trained from another start, or go on from that release by `tacit run` with model.start",
        )


def _name_base(file: Path) -> None:
    """Reduce the path of an adapter's base model to its name: peft writes where it lies on this machine."""
    if not file.is_file():
        return
    values = read_strict(file, _MOST_BYTES)
    base = values.get("base_model_name_or_path") if isinstance(values, dict) else None
    if isinstance(base, str) and Path(base).is_absolute():
        write_json(file, {**values, "base_model_name_or_path": Path(base).name})


def _check_ledger(folder: RunFolder, plan: StepPlan, ledger: Ledger) -> None:
    if ledger.header != plan.header(ledger.header.key_commitment) or STAGE not in ledger.plans:
        raise LedgerError(f"{folder.root}: {folder.loop_plan.name} and ledger do not belong together; bring them back")


def _pay_all(folder: RunFolder, plan: StepPlan, ledger: Ledger, forfeit: bool) -> None:
    """All planned steps are certified, since the moment of an early end may say something."""
    paid = ledger.spent(STAGE)
    if paid == 0:
        raise UsageError(f"{folder.root}: no step was taken, so there is nothing to certify")
    if paid < plan.steps and not forfeit:
        raise UsageError(
            f"{folder.root}: {plan.steps - paid} of {plan.steps} steps are left; take them, or say forfeit=True: they are paid and "
            "certified all the same, since when a training ends early may depend on private text"
        )
    for step in range(paid, plan.steps):
        ledger.charge(STAGE, step)


def _write_page(target: Path, certificate: dict[str, Any]) -> None:
    own, first = certificate["own_loop"], certificate["epsilons"][0]
    epsilon, delta = upper(read_number(first["epsilon"]), ".2f"), upper(read_number(first["delta"]))
    lines = [
        "# Trained with differential privacy",
        "",
        f"Epsilon {epsilon} at delta {delta} for every {certificate['unit']}.",
        "",
        own["statement"],
        "",
        "The training loop was its author's own. So the guarantee rests on this, which no program has checked:",
        "",
        *(f"- {line}" for line in own["assumptions"]),
        "",
        "`certificate.json` has all numbers; `tacit verify` computes them again.",
        "",
    ]
    (target / "README.md").write_text("\n".join(lines), encoding="utf-8")
