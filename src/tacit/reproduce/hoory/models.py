"""Every model that tables and figures need, and every vocabulary."""

from __future__ import annotations

from dataclasses import replace

from tacit.reproduce.hoory.cells import FAMILIES, MAIN, UNITS, DpTraining, Lexicon, Model, PlainTraining, Private, again
from tacit.reproduce.hoory.scale import Scale

__all__ = ["REFERENCE", "lexicons_of", "models_of"]


def models_of(scale: Scale) -> list[Model]:
    """Every model, those of the table first."""
    return [*_table(scale), *_figure(scale), *_canaries(scale), *(_tricks(scale) if scale.tricks else ())]


def lexicons_of(scale: Scale) -> list[Lexicon]:
    """Every vocabulary whose size is the budget's."""
    return [Lexicon(private, epsilon) for private in UNITS for epsilon in scale.lexicons]


def _table(scale: Scale) -> list[Model]:
    models: list[Model] = []
    for name, family in FAMILIES.items():
        own = scale.dp[family.private]
        rows: list[tuple[str, str, PlainTraining | DpTraining | None]] = []
        if family.bert:
            rows.append(("bert", "BERT", None))
        if family.plain:
            rows.append(("bert-m", "BERT-M", scale.plain[family.private]))
        rows += [(f"dp-{epsilon:g}", "BERT-DP", replace(own, epsilon=epsilon)) for epsilon in family.epsilons]
        tasks = tuple(task for task, size in scale.tasks.items() if size.private == family.private)
        models += [
            Model(
                f"{name}-{arm}{again(replicate)}",
                "table2",
                f"{words}, {family.words}",
                family.private,
                replace(family.base, replicate=replicate),
                training,
                tasks=tasks,
            )
            for replicate in range(1, scale.replicates.get(name, 0) + 1)
            for arm, words, training in rows
        ]
    return models


def _figure(scale: Scale) -> list[Model]:
    """Figure 1: noise, steps and batch of the notes' training, each alone; batch with noise that is proportional to its root, and at
    one epsilon with as many passes over the notes.
    """
    family = FAMILIES[MAIN["notes"]]
    own = scale.dp["notes"]
    fixed = replace(own, epsilon=None)

    def batch(factor: float, training: DpTraining) -> DpTraining:
        return replace(training, expected_batch=max(1, round(factor * training.expected_batch)))

    points: list[tuple[str, float, DpTraining]] = [
        *(("noise", factor, replace(fixed, noise_factor=factor)) for factor in scale.noise_factors),
        *(("steps", factor, replace(fixed, steps=max(1, round(factor * own.steps)))) for factor in scale.step_factors),
        *(("batch", factor, batch(factor, fixed)) for factor in scale.batch_factors),
        *(("root", factor, batch(factor, replace(fixed, noise_factor=factor**0.5))) for factor in scale.batch_factors),
        *(
            ("passes", factor, batch(factor, replace(own, steps=round(own.steps / factor))))
            for factor in scale.batch_factors[:1]
        ),
    ]
    return [
        Model(
            f"figure1-{name}-{factor:g}{again(replicate)}",
            "figure1",
            f"{name} times {factor:g}",
            "notes",
            replace(family.base, replicate=replicate),
            training,
        )
        for replicate in range(1, scale.curves + 1)
        for name, factor, training in points
    ]


def _canaries(scale: Scale) -> list[Model]:
    """Models with and without DP; where canaries are most frequent also at the epsilon of the paper's figure, 1, with half the
    batch, and with half the steps. Each as often as a point of figure 1, with canaries of its own; once where that is not trained.
    """
    base, most, dp = FAMILIES[MAIN["notes"]].base, max(scale.rates_of_canaries), scale.dp["notes"]
    fixed = replace(dp, epsilon=None)
    rows: list[tuple[str, DpTraining | PlainTraining, float]] = [
        row for rate in scale.rates_of_canaries for row in (("dp", dp, rate), ("control", scale.plain["notes"], rate))
    ]
    rows += [
        ("dp-as-in-paper", replace(dp, epsilon=1.0), most),
        ("dp-half-batch", replace(fixed, expected_batch=max(1, dp.expected_batch // 2)), most),
        ("dp-half-steps", replace(fixed, steps=max(1, dp.steps // 2)), most),
    ]
    return [
        Model(
            f"canaries-{name}-{rate:g}{again(replicate)}",
            "figure2",
            "canaries",
            "notes",
            replace(base, replicate=replicate),
            training,
            canaries=rate,
        )
        for replicate in range(1, max(1, scale.curves) + 1)
        for name, training, rate in rows
    ]


REFERENCE: dict[Private, str] = {"dialogues": "trick-reference", "notes": "trick-few-reference"}
"""The DP training on the stand-in that each trick changes in one thing."""


def _tricks(scale: Scale) -> list[Model]:
    """Each is a DP training with one thing changed, on public dialogues in the private text's place: nothing private is read. As many
    as there are dialogues, and as few as there are notes.
    """
    base = FAMILIES[MAIN["dialogues"]].base
    rows: dict[Private, list[tuple[str, str, DpTraining]]] = {
        "dialogues": _of_dialogues(scale),
        "notes": _of_notes(scale),
    }
    return [
        Model(f"trick-{name}", "tricks", words, private, base, training)
        for private, own in rows.items()
        for name, words, training in own
    ]


def _of_dialogues(scale: Scale) -> list[tuple[str, str, DpTraining]]:
    dp = replace(scale.dp["dialogues"], on="stand-in")
    return [
        ("reference", "as it is", dp),
        *_batches("", dp, UNITS["dialogues"]),
        ("no-average", "the last iterate, no mean", replace(dp, average=None)),
        ("one-sequence", "one sequence of a dialogue a step", replace(dp, sequences=1)),
        ("maskings", "one sequence, with four maskings", replace(dp, sequences=1, maskings=4)),
        *_rates("", dp),
        ("falling-noise", "noise that falls by half in two phases", replace(dp, schedule=(1.4, 0.7))),
        ("correlated", *_correlated(dp)),
        ("small-correlated", *_correlated(_batch(dp, max(1, dp.expected_batch // 2), 2))),
        ("small-clip", "a tenth of the clip norm", replace(dp, clip_norm=dp.clip_norm / 10)),
        ("lora", "LoRA of rank 16 alone is trained", replace(dp, adapter=16)),
        ("frozen", "all but the embeddings is trained", replace(dp, trained="without-embeddings")),
        ("biases", "biases and norms alone are trained", replace(dp, trained="biases-and-norms")),
    ]


def _correlated(dp: DpTraining) -> tuple[str, DpTraining]:
    """Training with noise correlated over as many bands as its batches allow, at most eight."""
    bands = min(8, UNITS["dialogues"] // dp.expected_batch)
    return f"batches of {dp.expected_batch}, as many passes, noise correlated over {bands} steps", replace(
        dp, noise_bands=bands
    )


def _of_notes(scale: Scale) -> list[tuple[str, str, DpTraining]]:
    dp = replace(scale.dp["notes"], on="stand-in")
    return [
        ("few-reference", "as the notes' training is", dp),
        *_batches("few-", dp, UNITS["notes"]),
        *_rates("few-", dp),
    ]


def _batches(prefix: str, dp: DpTraining, units: int) -> list[tuple[str, str, DpTraining]]:
    half, twice = max(1, dp.expected_batch // 2), min(2 * dp.expected_batch, units)
    return [
        (f"{prefix}small-batch", f"batches of {half}, as many passes", _batch(dp, half, 2)),
        (f"{prefix}large-batch", f"batches of {twice}, as many passes", _batch(dp, twice, dp.expected_batch / twice)),
    ]


def _rates(prefix: str, dp: DpTraining) -> list[tuple[str, str, DpTraining]]:
    return [
        (f"{prefix}low-rate", "half the learning rate", replace(dp, learning_rate=dp.learning_rate / 2)),
        (f"{prefix}high-rate", "twice the learning rate", replace(dp, learning_rate=dp.learning_rate * 2)),
        (f"{prefix}less-masked", "half as many pieces masked", replace(dp, masked=dp.masked / 2)),
    ]


def _batch(training: DpTraining, expected_batch: int, times: float) -> DpTraining:
    """Another batch, with times as many steps."""
    return replace(training, expected_batch=expected_batch, steps=max(1, round(times * training.steps)))
