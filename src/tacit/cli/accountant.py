"""`tacit accountant`: the numbers without any data."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Annotated

import typer

from tacit.cli.accountant_options import (
    Delta,
    MaxWords,
    Multiplier,
    NoiseKind,
    RelationOption,
    Sampling,
    Stddev,
    Steps,
    Threshold,
    check_histogram,
    noise_named,
    relation_named,
    share_or_labels,
    show,
    show_confidentiality,
)
from tacit.cli.options import JsonOption, print_json
from tacit.errors import RefusedError, UsageError
from tacit.privacy.rounded import upper

__all__ = ["app"]

app = typer.Typer(no_args_is_help=True, help="Compute epsilons and noise without any data (every figure is checkable).")


@app.command("epsilon")
def epsilon_command(
    noise_multiplier: Multiplier,
    sampling_probability: Sampling,
    steps: Steps,
    delta: Delta,
    relation: RelationOption = "add-or-remove",
    as_json: JsonOption = False,
) -> None:
    """Epsilon of DP-SGD: PLD (certified) and, beside it, Renyi DP."""
    from tacit.privacy.accounting.accountant import epsilon, mu_at
    from tacit.privacy.accounting.renyi import rdp_epsilon
    from tacit.privacy.events import PoissonGaussian, Spend

    spends = [Spend(PoissonGaussian(sampling_probability, noise_multiplier), steps)]
    found = epsilon(spends, delta, relation_named(relation))
    show(
        {
            "epsilon": found,
            "delta": delta,
            "noise_multiplier": noise_multiplier,
            "sampling_probability": sampling_probability,
            "steps": steps,
            "relation": relation,
            "epsilon_rdp": rdp_epsilon(spends, delta, relation_named(relation)),
            "mu": mu_at(found, delta),
        },
        as_json,
    )


@app.command("noise")
def noise_command(
    epsilon: Annotated[float, typer.Option(help="Epsilon to meet.")],
    sampling_probability: Sampling,
    steps: Steps,
    delta: Delta,
    relation: RelationOption = "add-or-remove",
    as_json: JsonOption = False,
) -> None:
    """The smallest noise multiplier of DP-SGD that meets a budget."""
    from tacit.privacy.accounting.accountant import epsilon as epsilon_of
    from tacit.privacy.accounting.calibrate import training_noise
    from tacit.privacy.events import PoissonGaussian, Spend

    found = training_noise(epsilon, delta, [(sampling_probability, steps)], relation_named(relation))
    spends = [Spend(PoissonGaussian(sampling_probability, found), steps)]
    show(
        {
            "noise_multiplier": found,
            "epsilon": epsilon_of(spends, delta, relation_named(relation)),
            "delta": delta,
            "sampling_probability": sampling_probability,
            "steps": steps,
            "relation": relation,
        },
        as_json,
    )


@app.command("histogram")
def histogram_command(
    max_words: MaxWords,
    noise_stddev: Stddev = None,
    threshold: Threshold = None,
    epsilon: Annotated[
        float | None, typer.Option(help="Epsilon to meet (solves the threshold, and the noise if absent).")
    ] = None,
    delta: Annotated[
        float | None, typer.Option(help="Delta; without it, the smallest that the threshold can have.")
    ] = None,
    relation: RelationOption = "add-or-remove",
    noise: NoiseKind = "gaussian",
    as_json: JsonOption = False,
) -> None:
    """The word histogram's exact law: its delta, its epsilon, or the noise and threshold for a budget.

    Also prints what corollary 1 of Hoory et al. 2021 would claim for the same noise, when delta is given.
    """
    from tacit.privacy.accounting import calibrate
    from tacit.privacy.accounting.histogram import histogram_delta, hoory_claim
    from tacit.privacy.events import ThresholdedHistogram

    check_histogram(noise_stddev, max_words)
    kind = relation_named(relation)
    if threshold is None:
        if epsilon is None or delta is None:
            raise UsageError("give --threshold, or --epsilon and --delta to solve it")
        if noise_stddev is None:
            event = calibrate.histogram(epsilon, delta, max_words, kind)
            noise_stddev, noise = float(upper(event.noise_stddev, ".6g")), event.noise
        threshold = calibrate.threshold_for(noise_stddev, max_words, epsilon, delta, kind, noise)
        if threshold is None:
            raise UsageError(f"--noise-stddev {noise_stddev:g} is too small for epsilon {epsilon:g} at delta {delta:g}")
        threshold = float(upper(threshold, ".6g"))  # what is printed has the epsilon and delta beside it
    if noise_stddev is None:
        raise UsageError("give --noise-stddev with --threshold")
    event = ThresholdedHistogram(noise_stddev, threshold, max_words, noise_named(noise))
    smallest = histogram_delta(event, math.inf, kind)
    found_epsilon = None
    if delta is not None:
        from tacit.privacy.accounting.accountant import epsilon as epsilon_of
        from tacit.privacy.events import Spend

        found_epsilon = epsilon_of([Spend(event)], delta, kind)
    claim = hoory_claim(noise_stddev, max_words, delta) if delta is not None and delta < 0.27 else None
    show(
        {
            "epsilon": found_epsilon,
            "delta": delta if delta is not None else smallest,
            "smallest_delta": smallest,
            "noise_stddev": noise_stddev,
            "threshold": threshold,
            "max_words": max_words,
            "noise": event.noise,
            "relation": relation,
            "hoory_claim": None if claim is None else claim.__dict__,
        },
        as_json,
    )


@app.command("joint")
def joint_command(
    noise_stddev: Annotated[float, typer.Option(help="Standard deviation of the noise on a word's count.")],
    threshold: Annotated[float, typer.Option(help="Smallest noisy count that is released.")],
    max_words: MaxWords,
    noise_multiplier: Multiplier,
    sampling_probability: Sampling,
    steps: Steps,
    delta: Delta,
    relation: RelationOption = "add-or-remove",
    noise: NoiseKind = "gaussian",
    as_json: JsonOption = False,
) -> None:
    """Vocabulary and training in one account: the joint epsilon, and each alone."""
    from tacit.privacy.accounting.accountant import epsilon
    from tacit.privacy.accounting.renyi import rdp_epsilon
    from tacit.privacy.events import PoissonGaussian, Spend, ThresholdedHistogram

    check_histogram(noise_stddev, max_words)
    kind = relation_named(relation)
    vocabulary = Spend(ThresholdedHistogram(noise_stddev, threshold, max_words, noise_named(noise)))
    training = Spend(PoissonGaussian(sampling_probability, noise_multiplier), steps)
    show(
        {
            "epsilon": epsilon([vocabulary, training], delta, kind),
            "delta": delta,
            "epsilon_vocabulary_alone": epsilon([vocabulary], delta, kind),
            "epsilon_training_alone": epsilon([training], delta, kind),
            "epsilon_rdp": rdp_epsilon([vocabulary, training], delta, kind),
            "noise_stddev": noise_stddev,
            "threshold": threshold,
            "max_words": max_words,
            "noise_multiplier": noise_multiplier,
            "sampling_probability": sampling_probability,
            "steps": steps,
            "relation": relation,
        },
        as_json,
    )


@app.command("loss-distribution")
def loss_distribution_command(
    output: Annotated[Path, typer.Argument(metavar="FILE", help="Plot to write: .svg or .png.")],
    noise_multiplier: Multiplier,
    sampling_probability: Sampling,
    steps: Steps,
    delta: Delta,
    relation: RelationOption = "add-or-remove",
) -> None:
    """Plot the privacy loss distribution of DP-SGD, with the part beyond epsilon shaded."""
    from tacit.privacy.accounting.accountant import epsilon
    from tacit.privacy.accounting.composition import loss_distribution
    from tacit.privacy.events import PoissonGaussian, Spend
    from tacit.report.loss_plot import plot_loss_distribution

    spends = [Spend(PoissonGaussian(sampling_probability, noise_multiplier), steps)]
    losses, probabilities = loss_distribution(spends, relation_named(relation))
    title = f"DP-SGD: noise multiplier {noise_multiplier:g}, sampling {sampling_probability:g}, {steps} steps"
    plot_loss_distribution(losses, probabilities, epsilon(spends, delta, relation_named(relation)), output, title)
    typer.echo(output)


@app.command("confidentiality")
def confidentiality_command(
    noise_multiplier: Multiplier,
    sampling_probability: Sampling,
    steps: Steps,
    delta: Delta,
    gamma: Annotated[float | None, typer.Option(help="Share of the secrets that the balanced policy misses.")] = None,
    labels: Annotated[int | None, typer.Option(help="Secrets labelled by hand, to bound gamma instead.")] = None,
    missed: Annotated[int, typer.Option(help="How many of these the balanced policy missed.")] = 0,
    delta_2: Annotated[
        float | None,
        typer.Option("--delta-2", help="Share that the conservative policy misses; without it everything is private."),
    ] = None,
    conservative_labels: Annotated[int | None, typer.Option(help="Labelled secrets, to bound delta-2 instead.")] = None,
    conservative_missed: Annotated[int, typer.Option(help="How many of these the conservative policy missed.")] = 0,
    confidence: Annotated[float, typer.Option(help="Confidence of each upper bound from labels.")] = 0.95,
    deduplication: Annotated[
        str, typer.Option(help="none, mask-all, keep-first or unmasked; exact copies only.")
    ] = "none",
    order: Annotated[
        str, typer.Option(help="deduplicate-first (as in the paper) or redact-first.")
    ] = "deduplicate-first",
    policy: Annotated[
        str, typer.Option(help="patterns (each token by itself) or context (may flip other labels of the record).")
    ] = "patterns",
    mask_reserved: Annotated[
        bool, typer.Option("--mask-reserved", help="Raw text cannot hold the mask token.")
    ] = False,
    whole_units: Annotated[
        bool, typer.Option("--whole-units", help="What is deduplicated is the unit that training samples.")
    ] = False,
    group_size: Annotated[int, typer.Option(help="Data points in which the secrets of a group occur.")] = 1,
    group_missed: Annotated[int | None, typer.Option(help="How many of the group the balanced policy misses.")] = None,
    all_copies: Annotated[
        bool, typer.Option("--all-copies", help="All copies of a sentence are masked at once.")
    ] = False,
    relation: RelationOption = "replace",
    paper: Annotated[bool, typer.Option("--paper", help="Print the paper's own number, and each correction.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Confidentially redacted training: how much the release says of one secret (worst case, then Bayesian)."""
    from tacit.privacy.accounting.replacement import Claim, screening_from_words
    from tacit.privacy.confidentiality.account import confidentiality
    from tacit.privacy.confidentiality.crt_paper import paper_rows
    from tacit.privacy.events import PoissonGaussian, Spend

    if relation_named(relation) != "replace":
        raise RefusedError(
            "replace-claim-from-add-or-remove",
            "confidentiality replaces a secret by <MASK>: leave --relation out, or say replace",
        )
    spends = [Spend(PoissonGaussian(sampling_probability, noise_multiplier), steps)]
    asked = share_or_labels("gamma", gamma, labels, missed)
    asked_2 = share_or_labels("delta-2", delta_2, conservative_labels, conservative_missed)
    screening = screening_from_words(deduplication, order, policy, mask_reserved=mask_reserved, whole_units=whole_units)
    claim = Claim(group_size, all_copies, group_missed)
    found = confidentiality(
        spends, delta, gamma=asked, delta_2=asked_2, confidence=confidence, screening=screening, claim=claim
    )
    rows = ()
    if paper:
        rows = paper_rows(
            spends, delta, gamma=asked, delta_2=asked_2, confidence=confidence, screening=screening, claim=claim
        )
    if as_json:
        print_json(found.to_dict() | {"paper": [row.__dict__ for row in rows]})
    else:
        show_confidentiality(found, rows)
