"""Train a cell and measure its model: perplexity on test text, epsilon as a function of rho, and the canary's exposure."""

from __future__ import annotations

import dataclasses
import shutil
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from transformers import GPT2LMHeadModel, PreTrainedModel

from tacit.audit.candidates import candidate_exposure
from tacit.audit.scorers import scorer_of
from tacit.audit.trie import Trie, score_candidates
from tacit.beginning import begin
from tacit.config import RunConfig
from tacit.corpus.units import Unit
from tacit.evaluation import causal_lm
from tacit.files import atomic_folder, private_folder
from tacit.folder import RunFolder
from tacit.models.given import load_folder
from tacit.pipeline.opening import open_run
from tacit.pipeline.rows import tokenized
from tacit.pipeline.scoring import scored, scored_folder
from tacit.pipeline.stages import walk
from tacit.pipeline.state import RunState
from tacit.privacy.accounting.accountant import epsilon_of_rho, joint_epsilon
from tacit.progress import SilentReporter
from tacit.randomness import Streams, key_of
from tacit.reproduce.adp.corpora import CorpusFiles
from tacit.reproduce.adp.public import PublicModel, experiment_seed
from tacit.reproduce.adp.runs import config_of
from tacit.reproduce.adp.scale import DELTA, Cell, Scale
from tacit.reproduce.place import with_public_key
from tacit.reproduce.writing import finite
from tacit.scoring.scorer import ScorerOptions
from tacit.training.sequences import tokenize_units
from tacit.vocabulary.given import read_given

__all__ = ["measure_cell", "measure_public", "score_cells"]


def score_cells(
    cell: Cell, scale: Scale, files: CorpusFiles, public: Mapping[str, PublicModel], out: Path
) -> dict[str, Any]:
    """Score the private text that this cell and others read; all of them share the scores.

    Args:
        cell: any adaptive one.
        out: the folder of all scores.
    """
    begun = time.monotonic()
    config = _config(cell, scale, files, public, RunFolder(out / "no run").root)
    scorer = ScorerOptions(_scorer(cell, public).model, config.model.length)
    folder = private_folder(out)
    scored(
        config,
        RunFolder(folder),
        Streams(key_of(experiment_seed(0))),
        scorer,
        _scorer(cell, public).rho,
        SilentReporter(),
        folder / cell.scores,
    )
    return {"seconds": time.monotonic() - begun}


def _scorer(cell: Cell, public: Mapping[str, PublicModel]) -> PublicModel:
    return public["frequent" if cell.frequent else "public"]


def _config(cell: Cell, scale: Scale, files: CorpusFiles, public: Mapping[str, PublicModel], run: Path) -> RunConfig:
    return config_of(cell, scale, files, public["public"], _scorer(cell, public), run)


def measure_cell(
    cell: Cell,
    scale: Scale,
    files: CorpusFiles,
    public: Mapping[str, PublicModel],
    trie: Path,
    scores: Path,
    runs: Path,
) -> dict[str, Any]:
    """The results of a cell; its run goes on where it was stopped, and is removed when it is measured.

    Args:
        public: ``public``, where it begins, and which scores; ``frequent``, which scores where the cell says so.
        trie: the canary's candidates.
        scores: the folder of all scores (`score_cells`).
    """
    begun = time.monotonic()
    folder = RunFolder(runs / cell.name)
    config = with_public_key(_config(cell, scale, files, public, folder.root), experiment_seed(cell.seed))
    if cell.is_adaptive:
        with begin(config):
            if not scored_folder(folder).exists():
                with atomic_folder(scored_folder(folder)) as partial:  # the run takes what is there for its own
                    shutil.copytree(scores / cell.scores, partial, dirs_exist_ok=True)
    with open_run(config) as state:
        walk(state, until="training")
        found = {
            "cell": dataclasses.asdict(cell),
            "epsilon": _epsilon(state),
            "epsilon_of_rho": _bands(state),
            "test": _test(state, files.test_units()),
            "exposure": _exposure(state, trie, scale.secret),
        }
    shutil.rmtree(folder.root)
    return finite(found | {"seconds": time.monotonic() - begun})


def _epsilon(state: RunState) -> float:
    """The worst case; infinite where text is read without DP, and of the literal form."""
    return joint_epsilon(state.mechanisms.spends_with_secret_key(), DELTA)


def _bands(state: RunState) -> list[dict[str, Any]]:
    """Epsilon as a public function of rho; of the certified forms."""
    found = epsilon_of_rho(state.mechanisms.spends_with_secret_key(), DELTA, "add-or-remove")
    return [{"begin": band.begin, "end": band.end, "epsilon": band.epsilon} for band in found]


def _test(state: RunState, units: list[Unit]) -> dict[str, Any]:
    """Loss (mean nats a token) and perplexity of the test text."""
    model = state.trained_model(state.mechanisms.phases[-1].name)
    losses = causal_lm.score_units({"model": model}, tokenized(state, units), state.streams)["model"]
    return _measured(losses, units)


def _measured(losses: causal_lm.UnitLosses, units: list[Unit]) -> dict[str, Any]:
    exact = causal_lm.perplexities(losses, *causal_lm.text_sizes(units))
    return {
        "loss": float(losses.nats_U.sum() / losses.tokens_U.sum()),
        "perplexity": exact.per_token,
        "perplexity_per_word": exact.per_word,
        "bits_per_byte": exact.bits_per_byte,
    }


def _exposure(state: RunState, trie: Path, secret: int) -> dict[str, Any]:
    model = state.trained_model(state.mechanisms.phases[-1].name)
    return _exposure_of(model, trie, state.special.start, secret)


def _exposure_of(model: PreTrainedModel, trie: Path, start: int, secret: int) -> dict[str, Any]:
    """Of the one canary, by its exact rank among all candidates."""
    model.eval()
    scores_N = score_candidates(scorer_of(model), Trie.load(trie), [start])
    found = candidate_exposure(scores_N, [secret])
    return {"bits": found.max_bits, "null_bits": found.null_max_bits, "p_value": found.max_p_value}


def measure_public(public: PublicModel, scale: Scale, files: CorpusFiles, trie: Path) -> dict[str, Any]:
    """A public model before any private text, as a model and as a scorer; and what needs no model at all.

    The unigram model is counted on the test text itself: the best that counting words could do.
    """
    given = read_given(public.model)
    streams, units = Streams(bytes(32)), files.test_units()
    stream = tokenize_units(units, given.tokenizer, given.special, scale.model["length"], streams)
    model = load_folder(GPT2LMHeadModel, public.model)
    tables = {
        "model": model,
        "unigram": causal_lm.unigram(stream, given.special.size),
        "uniform": causal_lm.uniform(given.special.size),
    }
    losses = causal_lm.score_units(tables, stream, streams)
    [canary] = ScorerOptions(public.model, scale.model["length"]).load().score([scale.canary_text])
    return finite(
        {
            "test": {name: _measured(loss, units) for name, loss in losses.items()},
            "canary_log_perplexity": canary.log_perplexity,
            "canary_rho": float(public.rho.of(canary.log_perplexity)),
            "lower": public.rho.lower,
            "upper": public.rho.upper,
            "exposure": _exposure_of(model, trie, given.special.start, scale.secret),
        }
    )
