"""A run's ledger and certificate against its configuration: what was promised, planned and said follows from it. Needs no torch.

The configuration is the file that the ledger's first row holds the digest of: of a run, of a fine-tuning, or a loop's plan.
"""

from __future__ import annotations

import dataclasses
import math
from pathlib import Path
from typing import Any

from tacit.config import RunConfig, parse_config
from tacit.config.base import values_digest
from tacit.config.finetune import FinetuneConfig, check_finetune
from tacit.errors import DataError, LedgerError, UsageError
from tacit.planning import mechanisms_from_ledger
from tacit.planning.confidentiality import check_statement
from tacit.planning.finetuning import FINETUNING, dp_phase, plain_phase
from tacit.planning.finetuning_facts import finetuning_facts
from tacit.planning.own_loop import STAGE, StepPlan, loop_randomness, loop_statement
from tacit.planning.phases import has_given_noise
from tacit.planning.stages import VOCABULARY
from tacit.privacy.certificate import finetuning_randomness, run_randomness
from tacit.privacy.certificate_checks import Check
from tacit.privacy.events import EVERY_PART, Spend
from tacit.privacy.ledger import Ledger, StagePlan
from tacit.privacy.precision import precision_words
from tacit.privacy.provenance import NOISE_SOURCE, Ancestor, is_inherited, stated_start
from tacit.privacy.strict_json import read_number, read_strict
from tacit.runs.folder import RunFolder

__all__ = ["check_finetuning", "check_loop", "check_run"]

_MOST_BYTES = 50 << 20


def check_run(folder: RunFolder, ledger: Ledger, stated: dict[str, Any]) -> list[Check]:
    """Check a run: its configuration's own digest, promise, stages, words and statement.

    Raises:
        LedgerError: the configuration cannot be read.
    """
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
        _check_people(config.same_people, stated),
        Check("no fine-tuning is stated", "fine_tuning" not in stated, header.unit),
        _check_no_loop(stated),
        *check_statement(config, ledger, stated),
    ]


def check_finetuning(folder: RunFolder, ledger: Ledger, stated: dict[str, Any]) -> list[Check]:
    """Check a fine-tuning, as `check_run` does a run.

    Raises:
        LedgerError: the configuration cannot be read.
    """
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
        _check_people(config.same_people, stated),
        Check("no confidentiality is stated", "confidentiality" not in stated, "a fine-tuning has none"),
        _check_no_loop(stated),
    ]


def check_loop(folder: RunFolder, ledger: Ledger, stated: dict[str, Any]) -> list[Check]:
    """Check a loop of one's own by its plan, as `check_run` does a run.

    Raises:
        LedgerError: the configuration cannot be read.
    """
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


def _check_people(same_people: bool, stated: dict[str, Any]) -> Check:
    """Whose people the releases that it began with may be of: by this their spends count, or do not."""
    try:
        others = not stated_start(stated).same_people
    except (AttributeError, LookupError, TypeError, ValueError, UsageError):
        return Check("people of the start", False, "the certificate does not say them, or in another form")
    return Check("people of the start", not (same_people and others), "others" if others else "perhaps the same")


def _check_no_loop(stated: dict[str, Any]) -> Check:
    return Check("no loop of one's own is stated", "own_loop" not in stated, "tacit ran it")


def _read_config(path: Path) -> Any:
    try:
        return read_strict(path, _MOST_BYTES)
    except DataError as error:
        raise LedgerError(str(error)) from None


def _check_digest(values: Any, left_out: frozenset[str], ledger: Ledger) -> Check:
    """Check the digest of the file as it is, so that options which a later version adds change nothing."""
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
    return run_randomness(source, config.seed is not None) + precision_words(ledger)


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
