"""The privacy probabilities of a run's units: scored by a public model, once, and bound to the ledger (adaptive DP).

In the ledger stand the constants of rho, which are public, and a keyed fingerprint of all rho, so that a run that goes on counts
every unit as it did before. What each unit has, and how many have it, stays in run/private.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from tacit.config import AdaptiveOptions, RunConfig
from tacit.corpus.records import Record
from tacit.corpus.units import Unit
from tacit.errors import DataError
from tacit.files import read_result, write_json
from tacit.pipeline.scoring import scored
from tacit.privacy.bands import Bands
from tacit.privacy.certificate import RHO
from tacit.privacy.ledger import Ledger
from tacit.progress import Reporter
from tacit.randomness import KeyedRandomness
from tacit.runs.folder import RunFolder
from tacit.scoring.public import require_public_scorer, scorer_folder
from tacit.scoring.rho import PrivacyProbability
from tacit.scoring.scorer import ScorerOptions
from tacit.scoring.scores import rho_in_order
from tacit.scoring.scoring import LEAST_PUBLIC, fit_public

__all__ = ["check_public_text", "check_scorer", "given_scorer", "unit_rho"]

_FINGERPRINT = "the privacy probabilities"
_MOST_PUBLIC = 5000
"""Public records from which the constants are taken: more say hardly more about a quantile."""


def given_scorer(options: AdaptiveOptions, same_people: bool = True) -> ScorerOptions | None:
    """The scorer in a given folder; None where it is a phase of the run.

    Args:
        same_people: whether the people whom it was trained on may be those of the run.

    Raises:
        RefusedError: it is a model of ours that read private text.
    """
    if options.scorer.folder is None:
        return None
    folder = scorer_folder(options.scorer.resolved_folder)
    require_public_scorer(folder, same_people)
    return ScorerOptions(folder, options.scorer.length)


def check_scorer(config: RunConfig) -> None:
    """Load the scorer that is given, so that a mistake in it shows before anything is written.

    Raises:
        RefusedError: it is not public.
        DataError: it is no causal model, or its tokenizer does not fit.
    """
    given = None if config.adaptive is None else given_scorer(config.adaptive, config.same_people)
    if given is not None:
        given.load()


def check_public_text(config: RunConfig, held_out: int) -> None:
    """Refuse too few public records for the constants of rho, before anything is spent.

    Raises:
        DataError: they are too few, whatever the scorer says of them.
    """
    options = config.adaptive
    if options is not None and options.lower is None and held_out < LEAST_PUBLIC:
        raise DataError(
            f"adaptive: {held_out} records of the public text are held out, and the constants of rho need {LEAST_PUBLIC} at least: "
            "give lower and upper, or more public text"
        )


@dataclass(frozen=True)
class _Run:
    """What scoring reads of a run."""

    config: RunConfig
    folder: RunFolder
    streams: KeyedRandomness
    reporter: Reporter


def unit_rho(
    config: RunConfig,
    folder: RunFolder,
    streams: KeyedRandomness,
    reporter: Reporter,
    ledger: Ledger,
    units: Sequence[Unit],
    read: Iterable[Unit],
    public: Callable[[], Sequence[Unit]],
    scorer: Path,
) -> np.ndarray:
    """rho of each unit that is trained on (U,), in order; a unit without text has rho 1.

    Args:
        streams: of the run's key.
        units: those that are trained on, in the order of their ids, and planted ones behind them.
        read: all that were read, in the order of their ids, with those that are held out: they are scored.
        public: loads held-out public text, from which the constants are taken where they are not given.
        scorer: the folder of the model that a phase left, where the scorer is no folder of its own.

    Raises:
        DataError: there is too little public text for the constants, or (a LedgerError) the probabilities have changed.
        RefusedError: the scorer is not public.
    """
    options = config.adaptive
    assert options is not None
    run = _Run(config, folder, streams, reporter)
    chosen = given_scorer(options, config.same_people) or ScorerOptions(scorer, config.model.length)
    rho = _constants(run, options, chosen, public)
    said = f"phase {options.scorer.phase}" if options.scorer.phase else "a given public model"
    stated = {"form": options.form, "scorer": said, "lower": rho.lower, "upper": rho.upper}
    ledger.bind(RHO, json.dumps(stated, sort_keys=True))
    scores = scored(config, folder, streams, chosen, rho, reporter, units=read)
    ids = (unit.unit_id if unit.texts else None for unit in units)
    rho_U = np.fromiter(rho_in_order(scores, ids), np.float64, count=len(units))
    ledger.bind(_FINGERPRINT, _fingerprint(units, rho_U, streams))
    _write_for_curator(run, options, rho_U)
    return rho_U


def _constants(
    run: _Run, options: AdaptiveOptions, scorer: ScorerOptions, public: Callable[[], Sequence[Unit]]
) -> PrivacyProbability:
    """The constants that are given, or those taken once from public text."""
    if options.lower is not None and options.upper is not None:
        return PrivacyProbability(options.lower, options.upper)
    path = run.folder.private / "rho.json"
    if not path.exists():
        run.reporter.say("Scoring: the constants of rho, from public held-out text ...")
        records = [Record(unit.unit_id, None, text) for unit in public() for text in unit.texts][:_MOST_PUBLIC]
        try:
            found, _ = fit_public(records, scorer, workers=run.config.compute.workers)
        except DataError as error:
            raise DataError(f"adaptive: give lower and upper, for the public held-out text does not: {error}") from None
        write_json(path, {"lower": found.lower, "upper": found.upper})
    stored = read_result(path)
    return PrivacyProbability(float(stored["lower"]), float(stored["upper"]))


def _fingerprint(units: Sequence[Unit], rho_U: np.ndarray, streams: KeyedRandomness) -> str:
    digest = hashlib.blake2b(key=streams.derive("rho"), digest_size=32, person=b"tacit-rho")
    for unit, rho in zip(units, rho_U.tolist(), strict=True):
        digest.update(json.dumps([unit.unit_id, rho]).encode() + b"\n")
    return digest.hexdigest()


def _write_for_curator(run: _Run, options: AdaptiveOptions, rho_U: np.ndarray) -> None:
    """How many units each band has: private, and of use to whoever chose the thresholds."""
    bands = Bands(options.thresholds, (1.0,) * options.bands).band_of(rho_U)
    counts = np.bincount(bands, minlength=options.bands).tolist()
    write_json(
        run.folder.private / "adaptive.json",
        {
            "private": "counts of private units; never publish them",
            "units": dict(zip(options.names, counts, strict=True)),
        },
    )
