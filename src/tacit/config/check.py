"""What parses but has no guarantee or no sense is refused here, each with its reason code (docs/guarantees.md).

One function a section, in the order of `check_meaning`: the first mistake is the one that is reported.
"""

from __future__ import annotations

from typing import Literal

from tacit.config.adaptive import stratum_number
from tacit.config.check_adaptive import check_adaptive
from tacit.config.kinds import KINDS, one_of
from tacit.config.run import RunConfig
from tacit.config.screening import check_bounds
from tacit.config.vocabulary_methods import METHODS
from tacit.errors import RefusedError, UsageError

__all__ = ["HEURISTICS", "check_meaning"]

HEURISTICS = (
    "heuristic:adp",
    "heuristic:no-confidentiality",
    "heuristic:non-private",
    "heuristic:public-key",
    "heuristic:selective-dp",
    "heuristic:unknown-start",
)
"""What ``allow`` may name, beside the entries of vocabulary methods; each is reported with epsilon = infinity."""


_OTHER_STAGES = ("vocabulary", "evaluation")
"""Stages of the ledger beside the phases. A name with ``control-`` would share a checkpoint with the control without DP."""


def check_meaning(config: RunConfig) -> None:
    """Refuse a configuration without a guarantee or without sense.

    Raises:
        UsageError: options that contradict each other.
        RefusedError: a guarantee that cannot be proved, with its reason code.
    """
    _check_budget(config)
    _check_allow(config)
    _check_seed(config)
    config.vocabulary.how.check_allowed(config)
    _check_marking(config)
    check_adaptive(config)
    _check_streams(config)
    _check_screening(config)
    _check_membership(config)
    _check_given(config)
    config.vocabulary.how.check(config)
    _check_model(config)
    _check_phases(config)
    _check_users(config)


def _check_budget(config: RunConfig) -> None:
    privacy = config.privacy
    if privacy.budget.delta >= 1 / privacy.units:
        raise RefusedError(
            "delta-too-large",
            f"privacy.budget.delta is {privacy.budget.delta:g} but must be below 1/privacy.units = {1 / privacy.units:.3g}: "
            "a larger delta allows publishing a whole unit",
        )


def _check_allow(config: RunConfig) -> None:
    known = sorted({*HEURISTICS, *(method.heuristic for method in METHODS.values() if method.heuristic)})
    for name in config.allow:
        if name not in known:
            raise UsageError(f"allow: unknown entry {name!r}; known: {', '.join(known)}")


def _check_seed(config: RunConfig) -> None:
    """A key that everyone can make hides nothing."""
    if config.seed is not None and "heuristic:public-key" not in config.allow:
        raise RefusedError(
            "public-key",
            "seed makes the key from a public text, and whoever knows the key takes all noise off; leave seed out, or add "
            "heuristic:public-key to allow (reported with epsilon = infinity)",
        )


def _check_marking(config: RunConfig) -> None:
    """Selective DP: it is a baseline, and its account covers the phases on marked text and nothing else."""
    marked = [phase for phase in config.phases if phase.stream == "marked"]
    if config.marking is None:
        if marked:
            raise UsageError("phases: stream: marked needs the section `marking`, which says what marks private tokens")
        return
    if config.screening is not None:
        raise UsageError("marking and screening: one reads raw text and the other redacts it; leave one of them out")
    if not marked:
        raise UsageError(
            "marking: no phase has stream: marked; add one (plan: selective, or plan: dp), or leave it out"
        )
    for phase in config.phases:
        if phase.stream in ("private", "screened"):
            raise UsageError(f"phases: {phase.name}: with marking, private text is read by stream: marked alone")
    if not config.model.row.releases_state:
        raise UsageError(
            f"model.kind is {config.model.kind}; it must be lstm with marking: the state of an LSTM is all that goes from one "
            "token to the next, where attention sees every private token again"
        )
    if "heuristic:selective-dp" not in config.allow:
        raise RefusedError(
            "public-tokens-without-noise",
            f"phases: {marked[0].name} is selective DP, which trains on the public tokens of private text without noise: no "
            "epsilon holds for the record. Use plan: dp on stream: private, or add heuristic:selective-dp to allow",
        )
    _check_data_points(
        config,
        "marking",
        RefusedError(
            "marking-needs-replace",
            "privacy.relation must be replace with marking: a record's private tokens are replaced by others, and no record "
            "is added or removed (docs/selective-dp.md)",
        ),
        "no private token may be counted",
    )
    for phase in config.dp_phases:
        if phase.noise_multiplier is None:
            raise UsageError(
                f"phases: {phase.name}: give noise_multiplier; on marked text it is not solved, as no budget holds there"
            )


def _check_streams(config: RunConfig) -> None:
    """Every phase has text to read, and text without noise is wanted as such."""
    streams = {phase.stream for phase in config.phases}
    for stream in sorted(streams & {"screened", "redacted"} if config.screening is None else ()):
        raise UsageError(
            f"phases: stream: {stream} needs the section `screening`, which says how the private corpus is screened"
        )
    own_words = config.screening is not None or config.marking is not None
    if not config.public and (not own_words or "public" in streams):
        raise UsageError("public: name at least one public corpus; a run without screening starts from public text")
    unclipped = config.unclipped_phases
    if unclipped and "heuristic:non-private" not in config.allow:
        raise RefusedError(
            "private-text-without-noise",
            f"phases: {unclipped[0].name} trains on private text without noise, which has no guarantee; use plan: dp, or add "
            "heuristic:non-private to allow (reported with epsilon = infinity)",
        )


def _check_screening(config: RunConfig) -> None:
    if config.screening is None:
        return
    _check_data_points(
        config,
        "screening",
        RefusedError(
            "screening-needs-replace",
            "privacy.relation must be replace with screening: a secret that is redacted or not changes a record, and adds or "
            "removes none (docs/confidentiality.md)",
        ),
        "the vocabulary comes from the screened text, or from outside",
    )
    group = config.screening.group
    if group is not None and group.by == "user" and config.private.user_field is None:
        raise UsageError(
            "screening.group.by is user but private.user_field is not set: name the field that holds the user's id"
        )
    check_bounds(config.screening)


def _check_data_points(
    config: RunConfig, section: Literal["screening", "marking"], other_relation: RefusedError, why_outside: str
) -> None:
    """With screening or marking the unit is a data point whose text is exchanged, and no histogram counts its words."""
    if config.privacy.relation != "replace":
        raise other_relation
    if config.privacy.unit != "record":
        raise UsageError(f"privacy.unit must be record with {section}: the unit is a data point ({section}.data_point)")
    if config.vocabulary.how.counts_private_text:
        others = " or ".join(name for name, method in METHODS.items() if not method.counts_private_text)
        raise UsageError(f"vocabulary.method must be {others} with {section}: {why_outside}")


def _check_membership(config: RunConfig) -> None:
    """The attack has a model that it can ask, texts that were not trained on, and enough groups."""
    options = config.audit.membership if config.audit else None
    if options is None:
        return
    if not config.model.is_causal:
        raise UsageError("audit.membership attacks causal models: set model.kind to lstm or gpt2, or leave it out")
    if config.evaluation.held_out == 0:
        raise UsageError(
            "audit.membership takes its non-members from the held-out part: set evaluation.held_out above 0, or leave it out"
        )
    if options.pairs < options.least_pairs:
        raise UsageError(
            f"audit.membership: {options.pairs} pairs are fewer than four groups of {options.group_size}; raise pairs to "
            f"{options.least_pairs}, or lower group_size"
        )


def _check_given(config: RunConfig) -> None:
    """A given model is named, has its vocabulary, and nothing beside it says what it decides."""
    vocabulary, folder = config.vocabulary, config.model.folder
    if config.model.new_vocabulary and (folder is None or config.model.row.new_vocabulary is None):
        raise UsageError(
            "model.new_vocabulary: only a bert that starts from model.folder gets another vocabulary; leave it out"
        )
    if config.model.new_vocabulary and vocabulary.path == folder:
        raise UsageError(
            "model.new_vocabulary: say in the section vocabulary how the new one is made, or which tokenizer it is; without it the "
            "run has that of model.folder"
        )
    if folder is not None and not vocabulary.how.brings_tokenizer and not config.model.new_vocabulary:
        raise UsageError(
            f"vocabulary.method is {vocabulary.method}, but the model in model.folder knows the ids of its own tokenizer only: leave "
            "the section out, or use method: given (a bert also takes model.new_vocabulary: true)"
        )
    if config.model.public and folder is None:
        raise UsageError("model.public is about model.folder; leave it out, or name the folder")
    if config.model.beside_folder:
        raise UsageError(
            f"model.{min(config.model.beside_folder)}: the model in model.folder decides this; leave it out"
        )


def _check_model(config: RunConfig) -> None:
    """The heads share the width, and rows are long enough for the canaries."""
    if config.model.row.has_heads and config.model.width % config.model.heads:
        raise UsageError(f"model.width {config.model.width} is not a multiple of model.heads {config.model.heads}")
    if config.model.initializer not in ("standard", *config.model.row.initializers):
        begun = one_of(kind for kind in KINDS.values() if config.model.initializer in kind.initializers)
        raise UsageError(
            f"model.initializer: {config.model.initializer} is for a {begun}, not for a {config.model.kind}; leave it out"
        )
    for phase in config.dp_phases if config.model.is_causal else ():
        if phase.maskings > 1:
            raise UsageError(f"phases: {phase.name}: maskings: a {config.model.kind} has no masks; leave it out")
    for pattern in config.audit.patterns if config.audit and not config.model.is_causal else ():
        if len(pattern) > config.model.length - 2:
            raise UsageError(f"audit.patterns: {pattern} does not fit in model.length {config.model.length}")


def _check_phases(config: RunConfig) -> None:
    """Names are free and distinct, and no batch is larger than the corpus."""
    names = [phase.name for phase in config.phases]
    for name in names:
        if name in _OTHER_STAGES or name.startswith("control-"):
            raise UsageError(f"phases: the name {name!r} is used by the run itself; choose another")
    if len(set(names)) < len(names):
        raise UsageError(f"phases: two phases share a name ({', '.join(names)})")
    for phase in config.dp_phases:
        stratum = stratum_number(phase.stream)
        share = config.adaptive.stated_shares[stratum] if config.adaptive and stratum is not None else 1.0
        if phase.expected_batch > share * config.privacy.units:
            units = f"privacy.units {config.privacy.units}"
            if stratum is not None:
                units = f"its stratum's stated share of {units}, {share:g}"
            raise UsageError(f"phases: {phase.name}: expected_batch {phase.expected_batch} exceeds {units}")


def _check_users(config: RunConfig) -> None:
    if config.privacy.unit == "user" and config.private.user_field is None:
        raise UsageError(
            "privacy.unit is user but private.user_field is not set: name the field that holds the user's id"
        )
