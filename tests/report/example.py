"""Realistic facts of one run, for the report's tests and for looking at the page; every number is invented or computed.

The epsilons are those that tacit's accountant gives for the events of the ledger below.
"""

from __future__ import annotations

import hashlib
import math

from tacit.report.schema import (
    CONTROL,
    EPSILON,
    RELEASED,
    SHARE,
    Assumption,
    AttackFacts,
    AttackRow,
    CumulativePoint,
    EpsilonPair,
    Estimated,
    Guarantee,
    IdentifierRow,
    LedgerRow,
    ModelFacts,
    PhaseRow,
    ProvedCurve,
    ReleasedFile,
    ReportData,
    Term,
    UtilityRow,
    VocabularyFacts,
    WhoseEpsilon,
)

__all__ = [
    "example_coins",
    "example_exposure",
    "example_membership",
    "example_report_data",
    "with_attacks",
    "with_highest",
]

PUBLIC_TEXT = "public held-out text"
PRIVATE_TEXT = "private held-out units (noisy, in the ledger)"


def example_report_data(*, curator_copy: bool = False, proved: bool = True) -> ReportData:
    """The facts of a BERT trained on clinical notes; ``proved=False`` makes its guarantee heuristic."""
    return ReportData(
        title="Masked language model of clinical notes",
        tacit_version="0.1.0",
        begun="2025-03-14",
        run_name="clinic-notes-eps3",
        config_digest=_digest("config"),
        ledger_head=_digest("ledger"),
        guarantee=_guarantee(proved),
        ledger=_ledger(proved),
        cumulative=_cumulative(proved),
        attacks=(example_exposure(curator_copy), *((example_membership(),) if curator_copy else ())),
        utility=_utility(),
        vocabulary=VocabularyFacts(
            method="public word list, and the private words that the noisy histogram releases",
            size=8192,
            released_words=661,
            parameters={"noise_stddev": 30.0, "threshold": 190, "max_words": 64, "noise": "discrete-gaussian"},
        ),
        model=ModelFacts(
            kind="BERT",
            layers=4,
            width=256,
            heads=4,
            parameters=5_390_336,
            max_length=128,
            loading_class="AutoModelForMaskedLM",
            pipeline_tag="fill-mask",
        ),
        phases=(
            PhaseRow(
                stream="public: 16,407 medical questions and answers",
                plan="plain gradient descent, no private text",
                steps=6000,
                batch="64 sequences",
                optimizer="AdamW, learning rate 0.0005, warm-up 500 steps",
            ),
            PhaseRow(
                stream="private: notes of 12,000 patients",
                plan="DP-SGD, noise multiplier 1.6, clip norm 1",
                steps=1200,
                batch="each patient with probability 0.0213, 256 on average",
                optimizer="AdamW, learning rate 0.001",
            ),
        ),
        files=tuple(
            ReleasedFile(path=path, sha256=_digest(path))
            for path in ("certificate.json", "model/config.json", "model/model.safetensors", "model/tokenizer.json")
        ),
        curve=ProvedCurve(corners=((0.0, 1e-6), (0.001, 0.0158), (0.1, 0.271), (0.38, 0.61), (1.0, 1.0)))
        if proved
        else None,
        whose=(
            WhoseEpsilon(
                who="one user: the certificate's unit", epsilon=2.786987543106079, success=0.616, of_unit=True
            ),
            WhoseEpsilon(who="one record of a user", epsilon=6.31, success=0.72),
            WhoseEpsilon(who="2 users together", epsilon=math.inf, success=0.722),
        )
        if proved
        else (),
        identifiers=(
            IdentifierRow(identifier="(A) names", labels=("name",), note="rare ones"),
            IdentifierRow(identifier="(P) biometric identifiers", labels=(), note="text alone is read"),
        ),
        license="other",
        budget_epsilon=3.0,
        curator_copy=curator_copy,
    )


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def _guarantee(proved: bool) -> Guarantee:
    curve = (
        (1e-6, 2.786987543106079),
        (1e-7, 3.0839481353759766),
        (1e-5, 2.461813449859619),
        (0.23045626227072477, 0.0),
    )
    return Guarantee(
        unit="user",
        unit_description="one patient: all notes that carry the same patient number",
        relation="add-or-remove",
        epsilons=tuple(EpsilonPair(delta=delta, epsilon=epsilon if proved else math.inf) for delta, epsilon in curve),
        mu=0.6061006989905442 if proved else math.inf,
        mu_delta=1e-6,
        status="proved" if proved else "heuristic",
        covered_outputs=(
            "the model's weights",
            "the tokenizer's word list",
            "the noisy evaluation on held-out patients",
        ),
        assumptions=(
            Assumption(text="Every note carries the patient number of the patient whom it is about.", label="assumed"),
            Assumption(text="A patient's gradient has norm at most 1 after clipping, in every layer.", label="proved"),
            Assumption(text="The random numbers cannot be predicted without the run's key.", label="assumed"),
            Assumption(
                text="Sums of float32 gradients differ from real sums by less than one part in 10⁵.", label="measured"
            ),
            *(() if proved else (Assumption(text="Fixed batches are accounted as if sampled.", label="heuristic"),)),
        ),
        not_covered=(
            "Other people who are named in a patient's notes, such as relatives and doctors: the unit is the patient.",
            "The number of patients, the choice of settings and the fact that the run took place: these are public.",
            "Copies of the notes elsewhere, and the run's private folder, which must not be published.",
        ),
        randomness="ChaCha20 under one 256-bit key from the operating system; the key stays in the private folder.",
    )


def _ledger(proved: bool) -> tuple[LedgerRow, ...]:
    histogram: dict[str, float | int | str] = {"noise_stddev": 30.0, "threshold": 190, "max_words": 64}
    sampled: dict[str, float | int | str] = {
        "sampling_probability": 256 / 12000,
        "noise_multiplier": 1.6,
        "clip_norm": 1.0,
    }
    rows = (
        ("vocabulary", "word counts with noise, those above a threshold", histogram, 1, 1.1372787356376648, "training"),
        (
            "word pieces",
            "noisy counts of the chosen words",
            {"noise_multiplier": 8.0},
            1,
            0.5038557052612305,
            "training",
        ),
        (
            "training",
            "noisy sum of clipped gradients of sampled patients",
            sampled,
            1200,
            2.416876792907715,
            "training",
        ),
        (
            "evaluation",
            "noisy sums over held-out patients",
            {"noise_multiplier": 2.0},
            1,
            2.2540847063064575,
            "held-out",
        ),
    )
    return tuple(
        LedgerRow(
            sequence=number,
            stage=stage,
            mechanism=mechanism,
            parameters=parameters,
            count=count,
            epsilon_alone=epsilon if proved or stage != "training" else math.inf,
            partition="training units" if part == "training" else "held-out units",
            digest=_digest(stage)[:12],
        )
        for number, (stage, mechanism, parameters, count, epsilon, part) in enumerate(rows, start=1)
    )


def _cumulative(proved: bool) -> tuple[CumulativePoint, ...]:
    curve = (1.1372787356376648, 1.2661856412887573, *((2.786987543106079,) * 2 if proved else (math.inf,) * 2))
    labels = ("vocabulary", "word pieces", "training, private phase", "evaluation on held-out patients")
    return tuple(CumulativePoint(label=label, epsilon=epsilon) for label, epsilon in zip(labels, curve, strict=True))


def example_exposure(curator_copy: bool) -> AttackFacts:
    """Canaries that the control gives away and the released model does not."""
    rows = (
        ("HS", RELEASED, 1.21, 0.34, 3539.6),
        ("HSH", RELEASED, 1.07, 0.47, 3900.2),
        ("HS", CONTROL, 11.9, 2.4e-31, 2.1),
        ("HSH", CONTROL, 12.6, 7.7e-37, 1.3),
    )
    return AttackFacts(
        name="exposure",
        title="Exposure of planted canaries",
        public=True,
        subject="the planted secrets",
        counted="pattern",
        note="Exposure: bits of a planted secret that an attacker saves.",
        terms=(Term(word="Canary", meaning="A made-up secret that is planted."),),
        rows=tuple(
            AttackRow(
                model=model,
                name=pattern,
                test=pattern,
                value=bits,
                unit="bits",
                null=1.02,
                p_value=p_value,
                ceiling=13.0,
                parameters={"canaries": 10, "inserted with": 0.01, "mean rank": rank},
            )
            for pattern, model, bits, p_value, rank in rows
            if curator_copy or model != CONTROL
        ),
    )


def with_attacks(data: ReportData, *attacks: AttackFacts) -> ReportData:
    """The same with these attacks alone."""
    return ReportData.model_validate(data.model_dump() | {"attacks": [attack.model_dump() for attack in attacks]})


def with_highest(data: ReportData) -> ReportData:
    """The same with the highest exposure beside the mean, as a causal model has it: two rows of one test."""
    highest = {RELEASED: (3.71, 0.61), CONTROL: (12.9, 2.1e-3)}
    rows = [
        one
        for row in data.attacks[0].rows
        for value, p_value in [highest[row.model]]
        for one in (
            row.model_copy(update={"name": f"{row.test}, mean of 10"}),
            row.model_copy(
                update={"name": f"{row.test}, highest of 10", "value": value, "p_value": p_value, "null": 4.23}
            ),
        )
    ]
    exposure = data.attacks[0].model_copy(update={"rows": tuple(rows)})
    return with_attacks(data, exposure, *data.attacks[1:])


def example_membership() -> AttackFacts:
    """An attack that finds nothing in the released model and something in the control, on fewer pairs than were asked for."""
    rows = (
        (RELEASED, 1, 310, (0.516, 0.476, 0.556), (0.521, 0.475, 0.566), (0.0129, 0.0, 0.081)),
        (RELEASED, 20, 15, (0.567, 0.374, 0.745), (0.61, 0.38, 0.81), None),
        (CONTROL, 1, 310, (0.842, 0.811, 0.87), (0.914, 0.89, 0.934), (0.413, 0.21, 0.66)),
        (CONTROL, 20, 15, (1.0, 0.884, 1.0), (1.0, 0.782, 1.0), None),
    )
    blind = {1: ((0.487, 0.43, 0.545), (0.481, 0.42, 0.545)), 20: ((0.433, 0.163, 0.722), (0.46, 0.2, 0.74))}
    return AttackFacts(
        name="membership",
        title="Membership inference on the texts themselves",
        public=False,
        subject="its training texts",
        counted="comparison",
        introduction=("An attacker is shown 310 texts that were trained on and as many that were held out.",),
        rows=tuple(
            row
            for model, texts, members, accuracy, auc, tpr in rows
            for row in (
                _share(model, "accuracy", texts, members, accuracy, blind[texts][0]),
                _share(model, "AUC", texts, members, auc, blind[texts][1]),
                *(() if tpr is None else (_share(model, "found at 1 %", texts, members, tpr, None),)),
            )
        ),
    )


def example_coins(value: float = 0.6289, ceiling: float = 5.81) -> AttackFacts:
    """A lower bound on epsilon from audit records with coins, and the point of the attacker behind it."""
    return AttackFacts(
        name="coins",
        title="Audit records with coins",
        public=True,
        subject="which audit records it was trained on",
        counted="bound",
        rows=(
            AttackRow(
                model=RELEASED,
                name="one-run, calibrated loss",
                test="one-run",
                value=value,
                unit=EPSILON,
                null=0.0,
                ceiling=ceiling,
                judged=False,
                words="So epsilon is at least 0.628 (95 % confidence, one-run, loss); a perfect attack could at best show 5.81",
            ),
            AttackRow(
                model=RELEASED,
                name="found at 5 %",
                test="found",
                value=0.083,
                unit=SHARE,
                null=0.05,
                interval=(0.06, 0.11),
                judged=False,
                false_alarms=0.05,
            ),
        ),
    )


Three = tuple[float, float, float]


def _share(model: str, what: str, texts: int, members: int, found: Three, blind: Three | None) -> AttackRow:
    value, low, high = found
    name = f"{what}, {'single texts' if texts == 1 else f'groups of {texts}'}"
    return AttackRow.model_validate(
        {
            "model": model,
            "name": name,
            "test": name,
            "value": value,
            "unit": SHARE,
            "null": 0.01 if what.startswith("found") else 0.5,
            "interval": (low, high),
            "ceiling": 1.0,
            "baseline": None if blind is None else _estimated(*blind),
            "judged": what == "accuracy",
            "parameters": {"members": members},
            "words": f"With it the attacker is right {100 * value:.1f} % of the time" if what == "accuracy" else "",
        }
    )


def _estimated(value: float, low: float, high: float) -> Estimated:
    return Estimated(value=value, low=low, high=high)


def _utility() -> tuple[UtilityRow, ...]:
    return (
        UtilityRow(corpus=PUBLIC_TEXT, model="uniform", masked_token_accuracy=0.000122, perplexity=8192.0),
        UtilityRow(corpus=PUBLIC_TEXT, model="unigram", masked_token_accuracy=0.0521, perplexity=612.4),
        UtilityRow(
            corpus=PUBLIC_TEXT,
            model="after public phase",
            masked_token_accuracy=0.3621,
            masked_token_accuracy_interval95=(0.3552, 0.3689),
            perplexity=58.31,
            perplexity_interval95=(55.9, 60.8),
        ),
        UtilityRow(
            corpus=PUBLIC_TEXT,
            model="released model",
            masked_token_accuracy=0.3412,
            masked_token_accuracy_interval95=(0.3344, 0.348),
            perplexity=66.07,
            perplexity_interval95=(63.2, 69.1),
        ),
        UtilityRow(
            corpus=PRIVATE_TEXT,
            model="released model",
            masked_token_accuracy=0.317,
            masked_token_accuracy_interval95=(0.289, 0.345),
            note="the interval includes the noise of the mechanism",
        ),
    )
