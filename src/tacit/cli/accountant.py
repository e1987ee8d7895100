"""`tacit accountant`: the numbers without any data."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from tacit.cli.options import JsonOption, print_json
from tacit.errors import UsageError

__all__ = ["app"]

app = typer.Typer(no_args_is_help=True, help="Compute epsilons and noise without any data (every figure is checkable).")

Relation = Literal["add-or-remove", "replace"]
RelationOption = Annotated[str, typer.Option("--relation", help="Neighbouring relation: add-or-remove or replace.")]
Sampling = Annotated[float, typer.Option(help="Probability with which a unit is in a step's batch.")]
Steps = Annotated[int, typer.Option(help="Number of training steps.")]
Delta = Annotated[float, typer.Option(help="Delta of the guarantee.")]
Multiplier = Annotated[float, typer.Option(help="Noise standard deviation over the clip norm.")]
Stddev = Annotated[float | None, typer.Option(help="Standard deviation of the noise on a word's count.")]
Threshold = Annotated[float | None, typer.Option(help="Smallest noisy count that is released.")]
MaxWords = Annotated[int, typer.Option(help="Distinct words that one unit contributes at most.")]
NoiseKind = Annotated[str, typer.Option("--noise", help="gaussian (real-valued) or discrete-gaussian (integers).")]


def _relation(name: str) -> Relation:
    if name == "replace":
        return "replace"
    if name == "add-or-remove":
        return "add-or-remove"
    raise UsageError(f"--relation is {name!r}; it must be add-or-remove or replace")


def _check_histogram(noise_stddev: float | None, max_words: int) -> None:
    if noise_stddev is not None and not (math.isfinite(noise_stddev) and noise_stddev > 0):
        raise UsageError(f"--noise-stddev is {noise_stddev}; it must be a finite number above 0")
    if max_words < 1:
        raise UsageError(f"--max-words is {max_words}; it must be at least 1")


def _show(values: dict[str, Any], as_json: bool) -> None:
    if as_json:
        print_json(values)
        return
    for name, value in values.items():
        if value is not None:
            typer.echo(
                f"{name.replace('_', ' ')}: {value:.6g}"
                if isinstance(value, float)
                else f"{name.replace('_', ' ')}: {value}"
            )


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
    from tacit.privacy.accountant import epsilon, mu_at, rdp_epsilon
    from tacit.privacy.events import PoissonGaussian, Spend

    spends = [Spend(PoissonGaussian(sampling_probability, noise_multiplier), steps)]
    found = epsilon(spends, delta, _relation(relation))
    _show(
        {
            "epsilon": found,
            "delta": delta,
            "noise_multiplier": noise_multiplier,
            "sampling_probability": sampling_probability,
            "steps": steps,
            "relation": relation,
            "epsilon_rdp": rdp_epsilon(spends, delta, _relation(relation)),
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
    from tacit.privacy.accountant import epsilon as epsilon_of
    from tacit.privacy.calibrate import training_noise
    from tacit.privacy.events import PoissonGaussian, Spend

    found = training_noise(epsilon, delta, [(sampling_probability, steps)], _relation(relation))
    spends = [Spend(PoissonGaussian(sampling_probability, found), steps)]
    _show(
        {
            "noise_multiplier": found,
            "epsilon": epsilon_of(spends, delta, _relation(relation)),
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
    from tacit.privacy import calibrate
    from tacit.privacy.events import ThresholdedHistogram
    from tacit.privacy.histogram import histogram_delta, hoory_claim

    _check_histogram(noise_stddev, max_words)
    kind = _relation(relation)
    if threshold is None:
        if epsilon is None or delta is None:
            raise UsageError("give --threshold, or --epsilon and --delta to solve it")
        if noise_stddev is None:
            event = calibrate.histogram(epsilon, delta, max_words, kind)
            noise_stddev, threshold, noise = event.noise_stddev, event.threshold, event.noise
        else:
            threshold = calibrate.threshold_for(noise_stddev, max_words, epsilon, delta, kind, noise)
            if threshold is None:
                raise UsageError(
                    f"--noise-stddev {noise_stddev:g} is too small for epsilon {epsilon:g} at delta {delta:g}"
                )
    if noise_stddev is None:
        raise UsageError("give --noise-stddev with --threshold")
    event = ThresholdedHistogram(noise_stddev, threshold, max_words, _noise_kind(noise))
    smallest = histogram_delta(event, math.inf, kind)
    found_epsilon = None
    if delta is not None:
        from tacit.privacy.accountant import epsilon as epsilon_of
        from tacit.privacy.events import Spend

        found_epsilon = epsilon_of([Spend(event)], delta, kind)
    claim = hoory_claim(noise_stddev, max_words, delta) if delta is not None and delta < 0.27 else None
    _show(
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


def _noise_kind(name: str) -> Literal["gaussian", "discrete-gaussian"]:
    if name == "gaussian":
        return "gaussian"
    if name == "discrete-gaussian":
        return "discrete-gaussian"
    raise UsageError(f"--noise is {name!r}; it must be gaussian or discrete-gaussian")


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
    from tacit.privacy.accountant import epsilon, rdp_epsilon
    from tacit.privacy.events import PoissonGaussian, Spend, ThresholdedHistogram

    _check_histogram(noise_stddev, max_words)
    kind = _relation(relation)
    vocabulary = Spend(ThresholdedHistogram(noise_stddev, threshold, max_words, _noise_kind(noise)))
    training = Spend(PoissonGaussian(sampling_probability, noise_multiplier), steps)
    _show(
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
    from tacit.privacy.accountant import epsilon, loss_distribution
    from tacit.privacy.events import PoissonGaussian, Spend
    from tacit.report.loss_plot import plot_loss_distribution

    spends = [Spend(PoissonGaussian(sampling_probability, noise_multiplier), steps)]
    losses, probabilities = loss_distribution(spends, _relation(relation))
    title = f"DP-SGD: noise multiplier {noise_multiplier:g}, sampling {sampling_probability:g}, {steps} steps"
    plot_loss_distribution(losses, probabilities, epsilon(spends, delta, _relation(relation)), output, title)
    typer.echo(output)
