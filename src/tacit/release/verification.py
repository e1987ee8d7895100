"""What `tacit verify` checks: a run with its ledger and configuration, or a released folder alone. Needs no torch.

A run is checked from the inside out: the ledger's chain and rows, the configuration that its first row holds the digest of, the
stages that this configuration asks for, the certificate that both give, the files it covers, and the manifest of everything in
run/release, which the ledger's last row holds. Whoever can write all of these can write them consistently: no check here sees that.
"""

from __future__ import annotations

import dataclasses
import math
import os
from pathlib import Path
from typing import Any

from tacit.config import RunConfig, parse_config
from tacit.config.base import values_digest
from tacit.config.entities import FinetuneConfig, check_finetune
from tacit.errors import DataError, LedgerError, UsageError
from tacit.folder import RunFolder
from tacit.planning import mechanisms_from_ledger
from tacit.planning.confidentiality import check_statement
from tacit.planning.finetuning import FINETUNING, dp_phase, plain_phase
from tacit.planning.finetuning_facts import finetuning_facts
from tacit.planning.own_loop import STAGE, StepPlan, loop_randomness, loop_statement
from tacit.planning.phases import has_given_noise
from tacit.planning.stages import VOCABULARY
from tacit.privacy.accounting.accountant import mu_at
from tacit.privacy.certificate import (
    Check,
    check_adaptive_statement,
    check_epsilons,
    file_digests,
    finetuning_randomness,
    read_number,
    run_randomness,
    verify_certificate,
)
from tacit.privacy.certificate_file import read_certificate
from tacit.privacy.events import (
    EVERY_PART,
    Spend,
    event_from_dict,
)
from tacit.privacy.ledger import Ledger, StagePlan
from tacit.privacy.precision import precision_words
from tacit.privacy.provenance import NOISE_SOURCE, Ancestor, is_inherited, stated_spends, stated_start
from tacit.privacy.strict_json import read_strict
from tacit.release.manifest import CERTIFICATE, check_bound, check_manifest

__all__ = [
    "UNSEEN_ALONE",
    "UNSEEN_CERTIFICATE",
    "is_release",
    "verify_arithmetic",
    "verify_ledger",
    "verify_release",
    "verify_run",
    "verify_statements",
]

UNSEEN_ALONE = (
    "A released folder alone shows that its numbers and files agree with each other. It does not show that the run was as the "
    "certificate says: for that, verify the run folder with its ledger, or trust whoever signed"
)

UNSEEN_CERTIFICATE = (
    "A lone certificate: its arithmetic was checked, and no more. No file, ledger or configuration was looked at: this does not show "
    "that any model is the one that was certified, that the run was as the certificate says, or that its statements in words hold"
)

_MOST_BYTES = 50 << 20


def is_release(folder: Path) -> bool:
    """Whether this is a released folder, and not the run that it came from.

    Raises:
        LedgerError: it has a certificate, as a release, and a ledger, as a run: whichever were checked, the other would pass unseen.
    """
    if not (folder / CERTIFICATE).exists():
        return False
    if os.path.lexists(RunFolder(folder).ledger):
        raise LedgerError(
            f"{folder}: neither a run nor a release: it holds both {CERTIFICATE} and ledger.sqlite, which no run or release does; "
            "name the one or the other"
        )
    return True


def verify_run(folder: RunFolder, certificate: Path | None = None) -> list[Check]:
    """All checks of a finished run; it holds when every one of them does.

    Args:
        certificate: another file than the one in the release.

    Raises:
        LedgerError: ledger, certificate or manifest cannot be read.
    """
    with Ledger.open(folder.ledger, readonly=True) as ledger:
        return verify_ledger(folder, ledger, certificate)


def verify_ledger(folder: RunFolder, ledger: Ledger, certificate: Path | None = None) -> list[Check]:
    """As `verify_run`, by the rows of this very ledger."""
    path = certificate or folder.release / CERTIFICATE
    if not path.is_file():
        raise LedgerError(f"{path}: no certificate there; `tacit run CONFIG` finishes a run")
    stated = read_certificate(path)
    return [
        *verify_statements(folder, ledger, stated),
        *check_manifest(folder.release),
        check_bound(ledger, folder.release),
    ]


def verify_statements(folder: RunFolder, ledger: Ledger, stated: dict[str, Any]) -> list[Check]:
    """The checks of a certificate and the model that it covers, without the manifest and the pages beside them.

    Raises:
        LedgerError: the certificate is not one of ours, or the configuration cannot be read.
    """
    own = _check_finetuning if folder.is_finetuning else _check_loop if folder.is_own_loop else _check_run
    checks = verify_certificate(ledger, stated, folder.release)
    checks += [_check_payments(ledger), _check_model(stated), _check_start(stated)]
    return checks + own(folder, ledger, stated)


def verify_release(folder: Path) -> list[Check]:
    """All checks of a released folder without its run: its files, and its numbers from its own list of what was spent.

    Raises:
        LedgerError: certificate or manifest cannot be read.
    """
    stated = read_certificate(folder / CERTIFICATE)
    found = {f"model/{name}": digest for name, digest in file_digests(folder / "model").items()}
    return [
        *_check_arithmetic(stated, folder),
        _check_model(stated),
        Check("released files", found == stated["files"], f"{len(found)} files in model"),
        *check_manifest(folder),
    ]


def verify_arithmetic(path: Path) -> list[Check]:
    """All checks of a certificate's file alone: its numbers from its own list of what was spent. See `UNSEEN_CERTIFICATE`.

    Raises:
        LedgerError: it cannot be read, or is no certificate.
    """
    return _check_arithmetic(read_certificate(path), path)


def _check_arithmetic(stated: dict[str, Any], place: Path) -> list[Check]:
    try:
        spends = stated_spends(stated)
        return [
            *check_epsilons(spends, stated),
            *_check_own_words(spends, stated),
            check_adaptive_statement(spends, stated),
            _check_start(stated),
        ]
    except (AttributeError, LookupError, TypeError, ValueError, ArithmeticError, MemoryError, UsageError):
        raise LedgerError(f"{place}: the certificate's spends have no epsilon that this version can compute") from None


def _check_own_words(spends: list[Spend], stated: dict[str, Any]) -> list[Check]:
    """What a certificate says of its epsilon elsewhere."""
    first = stated["epsilons"][0]
    epsilon, delta = read_number(first["epsilon"]), float(first["delta"])
    heuristic = any(not spend.event.is_private for spend in spends) or math.isinf(epsilon)
    mu, budget = read_number(stated["mu"]), stated["budget"]
    holds = {
        "status": stated["status"] == ("heuristic" if heuristic else "proved"),
        "mu": math.isclose(mu, mu_at(epsilon, delta), rel_tol=1e-6),
        "budget": float(budget["delta"]) == delta and epsilon <= read_number(budget["epsilon"]),
        "delta against the number of units": delta * stated["units"] < 1,
        "fine-tuning": _is_dp(stated) or heuristic,
    }
    wrong = [name for name, agrees in holds.items() if not agrees]
    return [Check("certificate agrees with itself", not wrong, ", ".join(wrong) or "status, mu and budget")]


def _is_dp(stated: dict[str, Any]) -> bool:
    """Whether it does not say that a fine-tuning without DP made it, which leaves what was spent before out of account."""
    return stated.get("fine_tuning", {}).get("with_dp") is not False


def _check_payments(ledger: Ledger) -> Check:
    unpaid = [plan.stage for plan in ledger.plans.values() if ledger.spent(plan.stage) != plan.limit]
    detail = f"{len(unpaid)} stages are not" if unpaid else f"{len(ledger.plans)} stages"
    return Check("every planned stage is paid in whole", not unpaid, detail)


def _check_start(stated: dict[str, Any]) -> Check:
    """Whether what was spent by the releases that the run started from is among its own spends, and nothing else is taken over."""
    name = "what was spent before is counted"
    try:
        start = stated_start(stated)
        counted = start.inherited if _is_dp(stated) else {}
        found = {
            spend["stage"]: Spend(event_from_dict(spend["event"]), spend["count"], spend["partition"])
            for spend in stated["spends"]
            if is_inherited(spend["stage"])
        }
    except (AttributeError, LookupError, TypeError, ValueError, UsageError):
        return Check(name, False, "the certificate does not say where the run began, or in another form")
    releases = f"{len(start.ancestors)} releases" + ("" if start.same_people else ", of other people as its user says")
    return Check(name, found == counted, releases if found == counted else "the spends of some release differ")


def _check_model(stated: dict[str, Any]) -> Check:
    """Whether the certificate covers a model and its tokenizer."""
    files = stated["files"]
    wanted = () if "own_loop" in stated else ("model/config.json", "model/tokenizer.json")
    missing = [name for name in wanted if name not in files]
    if not any(name.startswith("model/") and name.endswith(".safetensors") for name in files):
        missing.append("the weights")
    return Check(
        "certificate covers the model", not missing, f"without {', '.join(missing)}" if missing else "all of it"
    )


def _check_run(folder: RunFolder, ledger: Ledger, stated: dict[str, Any]) -> list[Check]:
    try:
        values = _read_config(folder.config)
        config = parse_config(values, str(folder.config))
    except UsageError as error:
        return [Check("configuration", False, str(error))]
    privacy, header = config.privacy, ledger.header
    epsilon = math.inf if config.is_unbounded else privacy.budget.epsilon
    promised = (privacy.unit_name, privacy.relation, privacy.units, epsilon, privacy.budget.delta)
    return [
        _check_digest(values, RunConfig.changeable, ledger),
        _check_header(promised, ledger),
        _check_plans(config, ledger),
        _check_words(_words(config, ledger), stated),
        Check("no fine-tuning is stated", "fine_tuning" not in stated, header.unit),
        _check_no_loop(stated),
        *check_statement(config, ledger, stated),
    ]


def _check_finetuning(folder: RunFolder, ledger: Ledger, stated: dict[str, Any]) -> list[Check]:
    path = folder.finetune_config
    try:
        values = _read_config(path)
        config = check_finetune(values, str(path))
    except UsageError as error:
        return [Check("configuration", False, str(error))]
    header, dp = ledger.header, config.dp
    promised = ("document", "add-or-remove", 0, math.inf, header.delta)
    if dp is not None:
        promised = (dp.unit, dp.relation, dp.units, dp.budget.epsilon, dp.budget.delta)
    source = ledger.bound(NOISE_SOURCE) or ""
    return [
        _check_digest(values, FinetuneConfig.changeable, ledger),
        _check_header(promised, ledger),
        _check_tuning(config, ledger),
        _check_words(finetuning_randomness(source, config.key_seed is not None) + precision_words(ledger), stated),
        _check_facts(config, header.delta, stated),
        Check("no confidentiality is stated", "confidentiality" not in stated, "a fine-tuning has none"),
        _check_no_loop(stated),
    ]


def _check_loop(folder: RunFolder, ledger: Ledger, stated: dict[str, Any]) -> list[Check]:
    try:
        values = _read_config(folder.loop_plan)
        plan = StepPlan.from_values(values, str(folder.loop_plan))
    except DataError as error:
        return [Check("plan of the loop", False, str(error))]
    header = plan.header(ledger.header.key_commitment)
    own = loop_statement(plan, read_number(stated["epsilons"][0]["epsilon"]))
    same = stated.get("own_loop") == own
    return [
        _check_digest(values, frozenset(), ledger),
        _check_header((header.unit, header.relation, header.units, header.epsilon, header.delta), ledger),
        Check("ledger's stages are the plan's", _has_planned(plan, ledger), STAGE),
        _check_words(loop_randomness(ledger.bound(NOISE_SOURCE) or ""), stated),
        Check(
            "statement and assumptions of the loop", same, "as recomputed" if same else "differ from what is recomputed"
        ),
        Check("no fine-tuning is stated", "fine_tuning" not in stated, header.unit),
        Check("no confidentiality is stated", "confidentiality" not in stated, "a loop of one's own has none"),
    ]


def _has_planned(plan: StepPlan, ledger: Ledger) -> bool:
    known = ledger.plans.get(STAGE)
    try:
        return known is not None and ledger.plans == {
            STAGE: StagePlan(STAGE, plan.with_noise_of(known.event).event, plan.steps, EVERY_PART)
        }
    except UsageError:
        return False


def _check_no_loop(stated: dict[str, Any]) -> Check:
    return Check("no loop of one's own is stated", "own_loop" not in stated, "tacit ran it")


def _read_config(path: Path) -> Any:
    try:
        return read_strict(path, _MOST_BYTES)
    except DataError as error:
        raise LedgerError(str(error)) from None


def _check_digest(values: Any, left_out: frozenset[str], ledger: Ledger) -> Check:
    """Of the file as it is, so that options which a later version adds change nothing."""
    digest = values_digest({name: value for name, value in values.items() if name not in left_out})
    stated = ledger.header.config_digest
    return Check("configuration is the ledger's", digest == stated, stated)


def _check_header(promised: tuple[Any, ...], ledger: Ledger) -> Check:
    header = ledger.header
    found = (header.unit, header.relation, header.units, header.epsilon, header.delta)
    detail = (
        f"epsilon {header.epsilon:g} at delta {header.delta:g} for each of {header.units} units of kind {header.unit}"
    )
    return Check("ledger promises what the configuration asks for", found == promised, detail)


def _words(config: RunConfig, ledger: Ledger) -> str:
    source = ledger.bound(NOISE_SOURCE) or ""
    return run_randomness(source, config.seed is not None, config.grid_phases) + precision_words(ledger)


def _check_words(words: str, stated: dict[str, Any]) -> Check:
    same = stated["randomness"] == words
    return Check(
        "words on randomness", same, "as the ledger has the source" if same else "differ from what the ledger has"
    )


def _check_plans(config: RunConfig, ledger: Ledger) -> Check:
    """Whether the run's own stages are those of its configuration: its steps, sampling, given noise, and nothing beside."""
    try:
        wrong = _different_plans(config, ledger)
    except (AssertionError, LookupError, ArithmeticError, ValueError, TypeError, UsageError, DataError):
        wrong = ["a stage of another kind"]
    return Check("ledger's stages are the configuration's", not wrong, ", ".join(wrong) or "all of them")


def _different_plans(config: RunConfig, ledger: Ledger) -> list[str]:
    own = {
        name: Spend(plan.event, plan.limit, plan.partition)
        for name, plan in ledger.plans.items()
        if not is_inherited(name)
    }
    mechanisms = mechanisms_from_ledger(config, ledger)
    if mechanisms is None:
        return ["some stages are missing"]
    wanted = {name: _of_this_run(spend, ledger) for name, spend in mechanisms.stages().items()}
    wrong = {name for name in wanted.keys() | own.keys() if wanted.get(name) != own.get(name)}
    for phase in config.dp_phases:
        names = [config.phase_name(phase, number) for number in range(config.rounds)]
        wrong |= {name for name in names if name in own and not has_given_noise(config, phase, own[name])}
    stated = config.vocabulary.how.stated_event(config)
    if stated is not None and VOCABULARY in own and own[VOCABULARY].event != stated:
        wrong.add(VOCABULARY)
    return sorted(wrong)


def _of_this_run(spend: Spend, ledger: Ledger) -> Spend:
    """The ledger's events of bands carry the name of the run that they are of."""
    return dataclasses.replace(spend, event=spend.event.with_rho(ledger.header.key_commitment))


def _check_tuning(config: FinetuneConfig, ledger: Ledger) -> Check:
    own = {name: plan for name, plan in ledger.plans.items() if not is_inherited(name)}
    plan = own.pop(FINETUNING, None)
    holds = plan is not None and not own and plan.partition == EVERY_PART
    if plan is not None and config.dp is None:
        phase = plain_phase(config.training, 1)
        holds &= plan.event == phase.event and config.training.steps in (None, plan.limit)
    elif plan is not None and config.dp is not None:
        noise = plan.event.step_noise_multiplier or 1.0
        phase = dp_phase(config.training, config.dp, config.dp.noise_multiplier or noise)
        holds &= plan.event == phase.event and plan.limit == phase.steps
    return Check("ledger's stages are the configuration's", holds, FINETUNING)


def _check_facts(config: FinetuneConfig, delta: float, stated: dict[str, Any]) -> Check:
    """The statement follows from the configuration, epsilon, and what is stated of the pre-training."""
    name = "statement of the fine-tuning"
    try:
        facts = stated["fine_tuning"]
        before = facts["pretraining"]
        pretraining = None
        if before is not None:
            pretraining = Ancestor(
                head=before["ledger_head"],
                unit=before["unit"],
                units=0,
                relation=before["relation"],
                epsilon=before["epsilon"],
                delta=float(before["delta"]),
                spends=(),
            )
        same = facts == finetuning_facts(config, pretraining, read_number(stated["epsilons"][0]["epsilon"]), delta)
    except (LookupError, TypeError, ValueError):
        return Check(name, False, "damaged")
    return Check(name, same, "as recomputed" if same else "differs from what is recomputed")
