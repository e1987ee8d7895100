"""The plan of a run as `tacit plan` shows it: the mechanisms, the price of each, and what a reader should know of them."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from typing import Any

from tacit.config import RunConfig
from tacit.planning.adaptive import adaptive_notes
from tacit.planning.confidentiality import planned_statement
from tacit.planning.corpora import missing_corpora
from tacit.planning.cost import memory_bytes, model_parameters, sequence_flops, trained_parameters
from tacit.planning.duration import Work, evaluation_seconds, timed, work_after, work_before
from tacit.planning.evaluation import evaluation_stages
from tacit.planning.locality import token_policies
from tacit.planning.measured import measurement_of_run
from tacit.planning.mechanisms import Mechanisms, solve
from tacit.planning.origins import provenance_of
from tacit.planning.phases import phase_stage
from tacit.planning.selective import run_account
from tacit.planning.stages import PUBLIC_KEY, Stage, priced
from tacit.planning.text import plan_html
from tacit.planning.usefulness import plan_warnings, recommended_vocabulary
from tacit.planning.vocabulary import vocabulary_notes, vocabulary_stages
from tacit.privacy.accounting.accountant import mu_at
from tacit.privacy.confidentiality.statement import ConfidentialityStatement
from tacit.privacy.events import EVERY_PART
from tacit.privacy.provenance import Provenance

__all__ = ["RunPlan", "make_plan", "plan_and_look"]


@dataclass(frozen=True)
class RunPlan:
    """The mechanisms with their price; of a run with screening also what it is going to say of a secret.

    Args:
        stages: those with a mechanism, or that train.
        work: all that the run does beside them, with its time.
        warnings: what is legal and of no use, in whole sentences (`tacit.planning.usefulness`).
    """

    mechanisms: Mechanisms
    stages: tuple[Stage, ...]
    unit: str
    relation: str
    epsilon: float
    delta: float
    mu: float
    parameters: int
    trained: int
    memory_bytes: int
    notes: tuple[str, ...]
    config_digest: str
    confidentiality: ConfidentialityStatement | None
    work: tuple[Work, ...]
    warnings: tuple[str, ...]

    @property
    def seconds(self) -> float | None:
        """Expected time of everything on two laptop cores; None: unknown, as on a GPU."""
        times = [*(stage.seconds for stage in self.stages), *(one.seconds for one in self.work)]
        known = [time for time in times if time is not None]
        return sum(known) if len(known) == len(times) else None

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready; infinite numbers become the string "infinity"."""
        return _jsonable({**dataclasses.asdict(self), "seconds": self.seconds})

    def _repr_html_(self) -> str:
        """The lines that `tacit plan` prints, which a notebook shows."""
        return plan_html(self)


def _jsonable(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _jsonable(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_jsonable(item) for item in value]
    return "infinity" if isinstance(value, float) and math.isinf(value) else value


def make_plan(config: RunConfig) -> RunPlan:
    """Solve what is not given and price everything.

    Raises:
        BudgetError: the given noise exceeds the budget, or no noise meets it.
        TacitError: the given tokenizer or model is not suitable.
    """
    privacy = config.privacy
    # what is given is checked before it is priced
    _ = token_policies(config)
    trained = trained_parameters(config)
    start = provenance_of(config)
    mechanisms = solve(config, list(start.inherited.values()))
    stages = _stages(config, mechanisms, start)
    total = stages[-1].epsilon_joint
    work = [*work_before(config), *work_after(config, mechanisms.phases, sequence_flops(config))]
    stages, work = timed(stages, work, config)
    return RunPlan(
        mechanisms=mechanisms,
        stages=stages,
        unit=privacy.unit_name,
        relation=privacy.relation,
        epsilon=total,
        delta=privacy.budget.delta,
        mu=mu_at(total, privacy.budget.delta),
        parameters=model_parameters(config),
        trained=trained,
        memory_bytes=memory_bytes(config),
        notes=_notes(config, mechanisms),
        config_digest=config.digest(),
        confidentiality=planned_statement(config, mechanisms.spends(), measurement_of_run(config)),
        work=work,
        warnings=plan_warnings(config, mechanisms.vocabulary, mechanisms.phases, trained),
    )


def plan_and_look(config: RunConfig) -> RunPlan:
    """The plan of `make_plan`, after a look at the corpora (`tacit.planning.corpora`): those that are not here are its warnings.

    Raises:
        TacitError: as `make_plan`; or a corpus that is here lacks a named field.
    """
    missing = missing_corpora(config)
    plan = make_plan(config)
    return dataclasses.replace(plan, warnings=(*missing, *plan.warnings))


def _stages(config: RunConfig, mechanisms: Mechanisms, start: Provenance) -> tuple[Stage, ...]:
    flops = sequence_flops(config)
    stages = [
        *_inherited_stages(start),
        *vocabulary_stages(config, mechanisms.vocabulary),
        *(phase_stage(phase, flops) for phase in mechanisms.phases),
        *(
            dataclasses.replace(stage, seconds=evaluation_seconds(config, flops))
            for stage in evaluation_stages(mechanisms.evaluation)
        ),
    ]
    public_key = mechanisms.stages().get(PUBLIC_KEY)
    if public_key is not None:
        stages.append(
            Stage(PUBLIC_KEY, "a key that everyone can make", {}, 1, public_key.event, EVERY_PART, seconds=0.0)
        )
    return priced(config, stages)


def _inherited_stages(start: Provenance) -> list[Stage]:
    """What the releases that the run starts from have spent on the same people."""
    found = []
    for name, spend in start.inherited.items():
        mechanism = "spent by a release that this run starts from"
        found.append(Stage(name, mechanism, {}, spend.count, spend.event, spend.partition, seconds=0.0))
    return found


def _notes(config: RunConfig, mechanisms: Mechanisms) -> tuple[str, ...]:
    return (
        *_screening_notes(config),
        *_selective_notes(config),
        *adaptive_notes(config, mechanisms.spends()),
        *_chat_notes(config),
        *vocabulary_notes(config, mechanisms.vocabulary),
        *recommended_vocabulary(config),
    )


def _chat_notes(config: RunConfig) -> list[str]:
    if not any(corpus.messages is not None for corpus in (config.private, *config.public)):
        return []
    from tacit.vocabulary.chat_template import read_chat_template  # Jinja comes with it, which other plans do not need

    if config.vocabulary.how.brings_tokenizer and read_chat_template(config.vocabulary.resolved_path) is not None:
        return []
    return [
        "messages: the tokenizer has no chat template, so a default one is used and released (role, line break, content, the token "
        "that ends a row); put a chat_template.jinja beside the tokenizer for another one"
    ]


def _screening_notes(config: RunConfig) -> list[str]:
    if config.screening is None:
        return []
    notes = [
        "screening: text that is judged safe is trained on without noise, so epsilon is infinite for the corpus as a whole; "
        "what can hold is the confidentiality account (`tacit confidentiality`), for which the DP phases alone count"
    ]
    if config.screening.missed:
        share = 100 * config.screening.missed
        notes.append(
            f"screening: the balanced policy is made to miss {share:g} % of the secrets that it finds, as an experiment"
        )
    return notes


def _selective_notes(config: RunConfig) -> list[str]:
    account = run_account(config)
    if account is None:
        return []
    return [
        "selective DP (a baseline): public tokens are trained on without noise, so epsilon is infinite for the record, and the "
        "budget bounds nothing",
        account.sentence,
    ]
