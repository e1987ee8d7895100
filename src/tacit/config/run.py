"""The whole configuration of a run: its sections, its digest, the order of their checks, and what follows from several of them.

Privacy options and speed options are different classes: everything under ``compute`` can change between two starts of a run
without changing any event, and `RunConfig.digest` leaves it out.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Annotated

from pydantic import Field

from tacit.config.adaptive import AdaptiveOptions, check_adaptive
from tacit.config.audit import AuditOptions, check_coins, check_control, check_membership
from tacit.config.base import Count, Printable, WholeConfig, shown
from tacit.config.compute import ComputeOptions, check_compute
from tacit.config.corpus import CorpusOptions, PublicCorpusOptions, check_chats
from tacit.config.evaluation import EvaluationOptions, check_evaluation
from tacit.config.marking import MarkingOptions, check_marking
from tacit.config.model import ModelOptions, check_given, check_model
from tacit.config.phases import DpPhase, Phase, PhaseOptions, SelectivePhase, check_phases, check_streams
from tacit.config.privacy import PrivacyOptions, check_budget, check_users
from tacit.config.screening import ScreeningOptions, check_screening
from tacit.config.vocabulary import VocabularyOptions, check_formula, check_vocabulary
from tacit.config.vocabulary_methods import METHODS
from tacit.errors import RefusedError, UsageError

__all__ = ["CHECKS", "HEURISTICS", "RunConfig", "check_meaning"]

HEURISTICS = (
    "heuristic:adp",
    "heuristic:no-confidentiality",
    "heuristic:non-private",
    "heuristic:public-key",
    "heuristic:selective-dp",
    "heuristic:unknown-start",
)
"""What ``allow`` may name, beside the entries of vocabulary methods; each is reported with epsilon = infinity."""


class RunConfig(WholeConfig):
    """A whole run.

    Args:
        title: heading of the report.
        run: the run folder.
        ledger_folder: a folder on a local disk, where the ledger is while a start works; at its end it is in the run folder. Needed
            where the run folder is on a network file system. A start that was killed is continued on the same machine.
        privacy: what is protected, and how well.
        private: the private corpus.
        public: the public corpora; there may be none only with ``screening`` or ``marking``.
        screening: how the private corpus is redacted and split before training; not given: no screening.
        marking: which tokens of the raw private corpus are private, for the baseline of selective DP; not given: nothing is marked.
        adaptive: how much a unit counts by its privacy probability; not given: all units count the same.
        vocabulary: the DP vocabulary, or a given tokenizer.
        model: the shape of the model, or the folder that it starts from.
        masking_probability: share of a sequence's tokens that is masked.
        rounds: how often the phases are run in turn, as in alternating training. Each phase goes on with its own optimizer, and the
            schedule of its learning rate runs over all rounds.
        phases: the training phases, in order.
        evaluation: held-out evaluation.
        audit: the attacks on the model; not given: no audit.
        compute: options of speed alone.
        same_people: whether the private text may be of people whose text went into what the run is given. What was spent on them then
            adds up. ``false`` only if you know that nobody is in both.
        seed: makes an experiment repeatable: the key is made from this public text, so everything that the key hides is public too.
            Needs ``allow: [heuristic:public-key]``, and epsilon is infinite.
        allow: heuristics that may run without a guarantee: ``heuristic:adp`` (adaptive DP as published), ``heuristic:hoory`` (the
            paper's formula for the vocabulary), ``heuristic:no-confidentiality`` (a run on screened text that keeps nothing
            confidential), ``heuristic:non-private`` (a baseline trained on private text without noise), ``heuristic:public-key`` (a
            ``seed``), ``heuristic:selective-dp`` (a baseline on marked text), ``heuristic:unknown-start`` (started from something of
            which nothing is known).
        relative_to: the folder that relative paths are relative to, itself relative to the file; not given: the file's own folder. It
            is no part of the digest.
    """

    added_later = frozenset({"adaptive", "same_people", "seed", "relative_to", "ledger_folder"})
    changeable = frozenset({"run", "ledger_folder", "title", "compute", "relative_to"})

    title: Printable = "tacit run"
    run: Printable
    ledger_folder: str | None = None
    privacy: PrivacyOptions
    private: CorpusOptions
    public: tuple[PublicCorpusOptions, ...] = ()
    screening: ScreeningOptions | None = None
    marking: MarkingOptions | None = None
    adaptive: AdaptiveOptions | None = None
    vocabulary: VocabularyOptions = VocabularyOptions()
    model: ModelOptions = ModelOptions()
    masking_probability: Annotated[float, Field(gt=0, lt=1)] = 0.15
    rounds: Count = 1
    phases: Annotated[tuple[Phase, ...], Field(min_length=1)]
    evaluation: EvaluationOptions = EvaluationOptions()
    audit: AuditOptions | None = None
    compute: ComputeOptions = ComputeOptions()
    same_people: bool = True
    seed: Annotated[str, Field(min_length=1)] | None = None
    allow: tuple[str, ...] = ()
    relative_to: str | None = None

    @property
    def resolved_run(self) -> Path:
        """The run folder."""
        return shown(self.located(self.run))

    @property
    def resolved_ledger_folder(self) -> Path | None:
        """Where the ledger is held; None: in the run folder."""
        return None if self.ledger_folder is None else self.located(self.ledger_folder)

    @property
    def uses_heuristic(self) -> bool:
        """Whether a stage without a proof runs, so that epsilon is infinite; ``allow`` alone does not make it so."""
        marked = any(phase.stream == "marked" for phase in self.phases)
        unproved = self.vocabulary.how.heuristic is not None or self.seed is not None
        return (
            unproved
            or "heuristic:unknown-start" in self.allow
            or bool(self.unclipped_phases)
            or marked
            or self.is_literal
        )

    @property
    def is_literal(self) -> bool:
        """Whether noise is scaled by the batch, as in the published adaptive DP."""
        return self.adaptive is not None and self.adaptive.form == "literal"

    @property
    def least_epsilon(self) -> float:
        """The smallest epsilon that a unit is to have, the run's or a band's: what everyone pays for takes its share of this one."""
        bands = (self.adaptive.budget or {}) if self.adaptive is not None else {}
        return min([self.privacy.budget.epsilon, *bands.values()])

    @property
    def is_unbounded(self) -> bool:
        """Whether epsilon is infinite for the corpus as a whole: a heuristic, or screened text, which gets no noise."""
        return self.uses_heuristic or self.screening is not None

    @property
    def dp_phases(self) -> list[DpPhase]:
        """The phases that train with noise: on the private or the marked stream, or on a stratum."""
        return [phase for phase in self.phases if isinstance(phase, DpPhase)]

    @property
    def unclipped_phases(self) -> list[PhaseOptions]:
        """The phases that train on private text without noise, as baselines."""
        return [phase for phase in self.phases if phase.is_baseline]

    @property
    def selective_phases(self) -> list[SelectivePhase]:
        """The phases that train on public tokens of the marked stream."""
        return [phase for phase in self.phases if isinstance(phase, SelectivePhase)]

    def phase_name(self, phase: PhaseOptions, round: int) -> str:
        """The phase's name in a round, from 0: its own where there is one round only."""
        return phase.name if self.rounds == 1 else f"{phase.name}-{round + 1}"


def check_allow(config: RunConfig) -> None:
    """What is allowed is known."""
    known = sorted({*HEURISTICS, *(method.heuristic for method in METHODS.values() if method.heuristic)})
    for name in config.allow:
        if name not in known:
            raise UsageError(f"allow: unknown entry {name!r}; known: {', '.join(known)}")


def check_seed(config: RunConfig) -> None:
    """A key that everyone can make hides nothing."""
    if config.seed is not None and "heuristic:public-key" not in config.allow:
        raise RefusedError(
            "public-key",
            "seed makes the key from a public text, and everybody who knows the key can subtract the noise; leave seed out, or add "
            "heuristic:public-key to allow (reported with epsilon = infinity)",
        )


CHECKS: tuple[Callable[[RunConfig], None], ...] = (
    check_budget,
    check_allow,
    check_seed,
    check_formula,
    check_chats,
    check_marking,
    check_adaptive,
    check_streams,
    check_screening,
    check_control,
    check_membership,
    check_coins,
    check_given,
    check_vocabulary,
    check_model,
    check_evaluation,
    check_compute,
    check_phases,
    check_users,
)
"""What parses but has no guarantee or no sense is refused by its section, in this order: the first mistake is the one reported."""


def check_meaning(config: RunConfig) -> None:
    """Refuse a configuration without a guarantee or without sense.

    Raises:
        UsageError: options that contradict each other.
        RefusedError: a guarantee that cannot be proved, with its reason code (docs/guarantees.md).
    """
    for check in CHECKS:
        check(config)
