"""The facts of a run's report, from the ledger, the certificate and released values: what a reader may know.

No input is private: the vocabulary's number of released words, the noisy evaluation and the exposure of keyed
canaries under the released model are all functions of ledger entries. The control without DP and the membership attack are passed in
for the curator's copy alone, and `tacit.report.data.ReportData` refuses them elsewhere.
"""

from __future__ import annotations

import datetime
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

import tacit
from tacit.audit.exposure import Exposure
from tacit.config import DpPhase, RunConfig, SelectivePhase
from tacit.config.shape import ModelShape
from tacit.folder import RunFolder
from tacit.planning import HELD_OUT, TRAINING
from tacit.privacy.accountant import epsilon, joint_epsilon
from tacit.privacy.certificate import read_number
from tacit.privacy.events import Event, Gaussian, PoissonGaussian, Spend, ThresholdedHistogram
from tacit.privacy.ledger import Ledger
from tacit.report import data as facts
from tacit.selective import run_account

__all__ = ["report_data"]

_UNITS = {
    "record": "one record of the private corpus",
    "document": "one document: all records with the same document id",
    "user": "one person: all records with the same user id",
}

_ORIGINS = {
    "histogram": "the vocabulary came from a private release",
    "hoory": "the vocabulary came from a private release",
    "public": "the vocabulary is that of text that gets no protection",
    "given": "the tokenizer was given, and is public",
}


def report_data(
    config: RunConfig,
    folder: RunFolder,
    ledger: Ledger,
    certificate: dict[str, Any],
    exposures: dict[str, list[Exposure]],
    evaluation: dict[str, Any],
    shape: ModelShape,
    released_words: int,
    curator: bool,
    membership: Mapping[str, Any] | None = None,
) -> facts.ReportData:
    header = ledger.header
    events = (plan.event for plan in ledger.plans.values())
    vocabulary = next((event for event in events if isinstance(event, ThresholdedHistogram)), None)
    return facts.ReportData(
        title=config.title,
        tacit_version=tacit.__version__,
        created=datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        run_name=folder.root.name,
        config_digest=header.config_digest,
        ledger_head=ledger.head,
        guarantee=_guarantee(config, certificate),
        ledger=_ledger_rows(ledger),
        cumulative=_cumulative(ledger),
        exposure=_exposure_rows(config, exposures),
        utility=_utility_rows(evaluation, curator),
        vocabulary=facts.VocabularyFacts(
            method=_vocabulary_method(config),
            size=evaluation["vocabulary_size"],
            released_words=released_words if vocabulary is not None else 0,
            parameters={} if vocabulary is None else _parameters(vocabulary),
        ),
        model=facts.ModelFacts(
            kind=shape.kind,
            layers=shape.layers,
            width=shape.width,
            heads=shape.heads,
            parameters=shape.parameters(evaluation["vocabulary_size"]),
            max_length=config.model.length,
        ),
        phases=_phase_rows(config, ledger),
        files=tuple(facts.ReleasedFile(path=path, sha256=digest) for path, digest in certificate["files"].items()),
        budget_epsilon=None if math.isinf(header.epsilon) else header.epsilon,
        curator_copy=curator,
        confidentiality=_confidentiality_lines(certificate),
        membership=None if membership is None else _membership(config, membership),
    )


def _vocabulary_method(config: RunConfig) -> str:
    if config.vocabulary.method == "given":
        return "a given tokenizer, public by the user's declaration"
    if config.vocabulary.method != "public":
        return config.vocabulary.method
    if config.public:
        return "words of the public corpora"
    return f"words of the {'screened' if config.marking is None else 'unmarked'} text, without noise"


def _confidentiality_lines(certificate: dict[str, Any]) -> tuple[facts.ConfidentialityLine, ...]:
    stated = certificate.get("confidentiality", {})
    lines = (stated.get(name) for name in ("worst_case", "screened", "bayesian"))
    return tuple(
        facts.ConfidentialityLine(
            **{
                name: line[name]
                for name in ("kind", "definition", "status", "sentence", "assumption", "epsilon", "delta")
            },
            paper=line["paper"]["epsilon"],
            difference=line["paper"]["difference"],
        )
        for line in lines
        if line is not None
    )


def _guarantee(config: RunConfig, certificate: dict[str, Any]) -> facts.Guarantee:
    privacy = config.privacy
    word = privacy.unit if isinstance(privacy.unit, str) else "record"
    described = (
        _UNITS[word] if isinstance(privacy.unit, str) else f"{privacy.unit.tuple} consecutive words of a document"
    )
    return facts.Guarantee(
        unit=word,
        unit_description=described,
        relation=privacy.relation,
        epsilons=_epsilon_pairs(certificate),
        mu=read_number(certificate["mu"]),
        mu_delta=certificate["epsilons"][0]["delta"],
        status=certificate["status"],
        covered_outputs=(
            f"model/: weights, configuration and tokenizer ({_ORIGINS[config.vocabulary.method]})",
            "certificate.json, report.html, report.json and README.md, with every number in them",
        ),
        assumptions=_assumptions(config),
        not_covered=_not_covered(config),
        randomness=certificate["randomness"],
    )


def _epsilon_pairs(certificate: dict[str, Any]) -> tuple[facts.EpsilonPair, ...]:
    """The certified pairs and, when there is a guarantee, the pair at epsilon 0 that bounds a guess best."""
    pairs = [
        facts.EpsilonPair(delta=pair["delta"], epsilon=read_number(pair["epsilon"])) for pair in certificate["epsilons"]
    ]
    if certificate["status"] == "proved" and 0 < certificate["total_variation"] < 1:
        pairs.append(facts.EpsilonPair(delta=certificate["total_variation"], epsilon=0.0))
    return tuple(pairs)


def _assumptions(config: RunConfig) -> tuple[facts.Assumption, ...]:
    unit = config.privacy.unit_name
    rows: list[tuple[str, Any]] = [
        *_screening_assumptions(config),
        *_selective_assumptions(config),
        *_given_assumptions(config),
        (
            "Epsilon is the joint privacy loss distribution of every ledger entry; Renyi DP bounds it independently.",
            "proved",
        ),
        *(
            []
            if config.vocabulary.method in ("public", "given")
            else [
                (
                    "The histogram's delta follows its exact law, not the formula of the paper (docs/guarantees.md).",
                    "proved",
                )
            ]
        ),
        (f"The ids in the private corpus say correctly which texts belong to one {unit}.", "assumed"),
        (
            f"privacy.units = {config.privacy.units} was stated without looking at the private corpus (it sets the sampling "
            "probability; the guarantee holds whatever the true number is).",
            "assumed",
        ),
        (
            "Steps, noise, clip norm, model size and all other options were fixed without looking at the private text.",
            "assumed",
        ),
        ("The run's key and everything in run/private stay secret.", "assumed"),
        ("Noise is drawn in floating point: attacks on the last bits of the noise are not modelled.", "assumed"),
    ]
    return tuple(facts.Assumption(text=text, label=label) for text, label in rows)


def _screening_assumptions(config: RunConfig) -> list[tuple[str, Any]]:
    options = config.screening
    if options is None:
        return []
    rows: list[tuple[str, Any]] = []
    if options.group is not None:
        rows.append(
            (
                f"The secrets of one {options.group.by} are in its own data points alone. These are at most "
                f"{options.group.most}: a corpus with more is refused.",
                "assumed",
            )
        )
    if options.gamma is None:
        rows.append(("What the screening misses was not measured: the worst case alone is stated.", "assumed"))
    else:
        rows.append(
            (
                f"The balanced policy misses at most a share {options.gamma:g} of the secrets, and both policies a share "
                f"{1.0 if options.delta2 is None else options.delta2:g} (`tacit screen --measure`), of secrets like the "
                "labelled ones.",
                "measured",
            )
        )
    return rows


def _selective_assumptions(config: RunConfig) -> list[tuple[str, Any]]:
    """What a run on marked text may say of private tokens alone, and what that rests on."""
    account = run_account(config)
    if account is None:
        return []
    return [
        ("Epsilon is infinite: public tokens of private records are trained on without noise.", "proved"),
        (f"Of the tokens that the policy marks, and of no others, {account.sentence}.", "proved"),
        ("The policy marks every secret, and what it marks does not depend on the private tokens.", "assumed"),
    ]


def _given_assumptions(config: RunConfig) -> list[tuple[str, Any]]:
    rows: list[tuple[str, Any]] = []
    if config.vocabulary.method == "given":
        rows.append(
            (
                "The given tokenizer is public; were it made from the private text, what it gives away is not counted.",
                "assumed",
            )
        )
    if config.model.folder is not None:
        rows.append(
            (
                "The given weights are public; were they made from the private text, what they give away is not counted.",
                "assumed",
            )
        )
    return rows


def _not_covered(config: RunConfig) -> tuple[str, ...]:
    unit = config.privacy.unit_name
    lines = [
        f"What several {unit}s have in common: facts, habits or names that occur with many of them can be learned.",
        f"Groups: for k {unit}s together the bound is weaker (epsilon grows about k times).",
        "Public text: the public corpora get no protection.",
        "Other releases of the same private text, by this tool or by others: every further release adds up.",
        "Everything in run/private: checkpoints, keys, canaries and the curator's copy of the report are not safe to publish.",
        "Time: how long the run took depends on the private text and is visible to whoever watches the machine.",
    ]
    return tuple(lines)


def _parameters(event: Event) -> dict[str, int | float | str]:
    return {name: value for name, value in asdict(event).items() if isinstance(value, int | float | str)}


_MECHANISMS: dict[type, str] = {
    ThresholdedHistogram: "thresholded word histogram with integer Gaussian noise",
    PoissonGaussian: "DP-SGD step: Poisson sampling, clipping, Gaussian noise",
    Gaussian: "Gaussian noise on bounded sums",
}


def _ledger_rows(ledger: Ledger) -> tuple[facts.LedgerRow, ...]:
    header, plans = ledger.header, ledger.plans
    rows = []
    for row in ledger.rows:
        if row.kind != "spend":
            continue
        plan = plans[row.body["stage"]]
        alone = epsilon([Spend(plan.event, row.count, plan.partition)], header.delta, header.relation)
        rows.append(
            facts.LedgerRow(
                sequence=row.sequence,
                stage=plan.stage,
                mechanism=_MECHANISMS.get(type(plan.event), "release without a guarantee"),
                parameters=_parameters(plan.event),
                count=row.count,
                epsilon_alone=alone,
                partition=HELD_OUT if plan.partition == HELD_OUT else TRAINING,
                digest=row.digest[:12],
            )
        )
    return tuple(rows)


def _cumulative(ledger: Ledger) -> tuple[facts.CumulativePoint, ...]:
    header = ledger.header
    points, so_far = [], []
    for plan in ledger.plans.values():
        count = ledger.spent(plan.stage)
        if count:
            so_far.append(Spend(plan.event, count, plan.partition))
            joint = joint_epsilon(so_far, header.delta, header.relation)
            points.append(facts.CumulativePoint(label=plan.stage, epsilon=joint))
    return tuple(points)


def _exposure_rows(config: RunConfig, exposures: dict[str, list[Exposure]]) -> tuple[facts.ExposureRow, ...]:
    options = config.audit
    if options is None:
        return ()
    return tuple(
        facts.ExposureRow(
            pattern=row.pattern,
            model=facts.CONTROL if name == facts.CONTROL else facts.RELEASED,
            canaries=row.canaries,
            insertion_probability=_insertion_probability(config),
            exposure_bits=row.bits,
            null_bits=row.null_bits,
            p_value=row.p_value,
            ceiling_bits=row.ceiling_bits,
            rank_mean=row.mean_rank,
            max_bits=row.max_bits,
            null_max_bits=row.null_max_bits,
            max_p_value=row.max_p_value,
        )
        for name, rows in _released_first(exposures)
        for row in rows
    )


def _released_first(by_model: Mapping[str, Any]) -> list[tuple[str, Any]]:
    """A file of the run folder has its keys in the order of the alphabet."""
    return sorted(by_model.items(), key=lambda item: item[0] == facts.CONTROL)


def _membership(config: RunConfig, found: Mapping[str, Any]) -> facts.MembershipFacts:
    """Rows of run/private/membership.json: by model, a `tacit.audit.membership.MembershipReport` as plain values."""
    assert config.audit is not None
    assert config.audit.membership is not None
    rows = [
        _membership_row(model, texts, report[attack], report[f"{attack}_blind"])
        for model, report in _released_first(found)
        for attack, texts in (("single", 1), ("group", report["group_size"]))
    ]
    return facts.MembershipFacts(pairs_wanted=config.audit.membership.pairs, rows=tuple(rows))


def _membership_row(model: str, texts: int, attack: Mapping[str, Any], blind: Mapping[str, Any]) -> facts.MembershipRow:
    return facts.MembershipRow(
        model=facts.CONTROL if model == facts.CONTROL else facts.RELEASED,
        texts=texts,
        members=attack["members"],
        accuracy=facts.Estimated(**attack["accuracy"]),
        auc=facts.Estimated(**attack["auc"]),
        tpr=None if attack["tpr"] is None else facts.Estimated(**attack["tpr"]),
        at_chance=attack["at_chance"],
        blind_accuracy=facts.Estimated(**blind["accuracy"]),
        blind_auc=facts.Estimated(**blind["auc"]),
        blind_at_chance=blind["at_chance"],
    )


def _insertion_probability(config: RunConfig) -> float:
    """Of one canary in one unit: a masked model's by the coin of each sequence, a causal one's as so many units of their own."""
    assert config.audit is not None
    if config.model.is_causal:
        return min(1.0, config.audit.copies / config.privacy.units)
    return config.audit.probability


_CORPORA: dict[str, Any] = {
    "public": "public held-out text",
    "private": "private held-out units (noisy, in the ledger)",
    "curator": facts.CURATOR_TEXT,
}
_MODELS: Sequence[Any] = ("released model", "after public phase", "unigram")


def _utility_rows(evaluation: dict[str, Any], curator: bool) -> tuple[facts.UtilityRow, ...]:
    rows = []
    size = evaluation["vocabulary_size"]
    for key, corpus in _CORPORA.items():
        if key not in evaluation or (key == "curator" and not curator):
            continue
        for model in _MODELS:
            if model in evaluation[key]:
                rows.append(_utility_row(corpus, model, evaluation[key][model], noisy=key == "private"))
        masked = "accuracy" in evaluation[key]["released model"]
        accuracy = 1 / size if masked else None
        rows.append(
            facts.UtilityRow(corpus=corpus, model="uniform", masked_token_accuracy=accuracy, perplexity=float(size))
        )
    return tuple(rows)


def _utility_row(corpus: Any, model: Any, scores: dict[str, Any], noisy: bool) -> facts.UtilityRow:
    accuracies = scores.get("accuracy_interval") if noisy else None
    return facts.UtilityRow(
        corpus=corpus,
        model=model,
        masked_token_accuracy=scores.get("accuracy"),
        masked_token_accuracy_interval95=None if accuracies is None else tuple(accuracies),
        perplexity=scores["perplexity"],
        perplexity_interval95=tuple(scores["perplexity_interval"]) if noisy else None,
        perplexity_per_word=scores.get("perplexity_per_word"),
        bits_per_byte=scores.get("bits_per_byte"),
        note=_utility_note(scores, noisy),
    )


def _utility_note(scores: dict[str, Any], noisy: bool) -> str:
    if noisy:
        return "interval of the added noise alone"
    if "bits_per_byte" not in scores:
        return ""
    return f"perplexity a token; {scores['perplexity_per_word']:.4g} a word, {scores['bits_per_byte']:.3f} bits a byte"


def _phase_rows(config: RunConfig, ledger: Ledger) -> tuple[facts.PhaseRow, ...]:
    rows = []
    for phase in config.phases:
        if isinstance(phase, DpPhase):
            noise_multiplier = _noise_multiplier(config, ledger, phase)
            batch = (
                f"{phase.expected_batch} units expected (Poisson), at most {phase.sequences_per_unit} sequences each"
            )
            plan = f"DP-SGD, {phase.clipping} clipping, clip norm {phase.clip_norm:g}, noise multiplier {noise_multiplier:g}"
        elif isinstance(phase, SelectivePhase):
            batch = f"{phase.batch_size} records"
            plan = (
                f"ordinary training on public tokens; at most {phase.segments} states of a record released, norm at most "
                f"{phase.state_clip:g}, noise multiplier {phase.state_noise_multiplier:g}"
            )
        else:
            batch, plan = f"{phase.batch_size} sequences", "ordinary training"
        rounds = f", in {config.rounds} rounds by turns" if config.rounds > 1 else ""
        rows.append(
            facts.PhaseRow(
                stream=phase.stream,
                plan=plan + rounds,
                steps=config.rounds * phase.steps,
                batch=batch,
                optimizer=f"AdamW, learning rate {phase.learning_rate:g}",
            )
        )
    return tuple(rows)


def _noise_multiplier(config: RunConfig, ledger: Ledger, phase: DpPhase) -> float:
    """As the ledger has it; on marked text, where the ledger holds no finite event, as it was given."""
    event = ledger.plans[config.phase_name(phase, 0)].event
    found = event.noise_multiplier if isinstance(event, PoissonGaussian) else phase.noise_multiplier
    assert found is not None
    return found
