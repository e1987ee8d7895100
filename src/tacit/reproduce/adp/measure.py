"""Train a cell and measure its model: perplexity on test text, epsilon as a function of rho, and the canary's exposure."""

from __future__ import annotations

import dataclasses
import itertools
import shutil
import time
from pathlib import Path
from typing import Any

import numpy as np
from transformers import GPT2LMHeadModel, PreTrainedModel

from tacit.audit.candidates import candidate_exposure
from tacit.audit.scorers import scorer_of
from tacit.audit.trie import Trie, build_trie, score_candidates
from tacit.config import RunConfig
from tacit.corpus.readers import read_records
from tacit.corpus.records import Record
from tacit.corpus.source import Source
from tacit.corpus.units import UnitKind, group_units
from tacit.evaluation import causal_lm
from tacit.files import atomic_folder, private_folder, write_atomically
from tacit.models.given import load_folder
from tacit.pipeline.opening import open_run
from tacit.pipeline.rows import tokenized
from tacit.pipeline.scoring import scored, scored_folder
from tacit.pipeline.stages import walk
from tacit.pipeline.state import RunState
from tacit.privacy.accounting.accountant import epsilon_of_rho, joint_epsilon
from tacit.progress import SilentReporter
from tacit.randomness import KeyedRandomness, key_of
from tacit.reproduce.adp.corpora import TEXTS, CorpusFiles, TestDocuments, kind_of
from tacit.reproduce.adp.public import PublicModel, public_model, train_public
from tacit.reproduce.adp.runs import config_of, trial_config
from tacit.reproduce.adp.scale import DELTA, MOST_SEEDS, Cell, Scale, ScorerName, Scores, Trial, experiment_seed
from tacit.reproduce.place import Place, with_public_key
from tacit.reproduce.writing import finite
from tacit.runs.beginning import begin
from tacit.runs.folder import RunFolder
from tacit.scoring.scorer import ScorerOptions
from tacit.scoring.scores import read_scores
from tacit.training.sequences import tokenize_units
from tacit.vocabulary.given import read_given

__all__ = ["kinds_of_lines", "measure"]


def measure(cell: Cell | Scores | Trial | ScorerName, scale: Scale, place: Place) -> dict[str, Any]:
    """The results of a job: a public model trained and measured, a private text scored, a learning rate tried, or a cell trained and
    attacked.
    """
    begun = time.monotonic()
    match cell:
        case Cell():
            found = _cell(cell, scale, place)
        case Scores():
            found = _score(cell, scale, place)
        case Trial():
            found = _trial(cell, scale, place)
        case _:
            found = _public(cell, scale, place)
    return finite(found | {"seconds": time.monotonic() - begun})


def _score(scores: Scores, scale: Scale, place: Place) -> dict[str, Any]:
    """Leave the scores in a folder, from which each cell that reads this text takes them; what rho finds, by kind of line."""
    text = scores.text
    frequent = scores.scorer == "frequent"
    cell = Cell("literal", scale.noise[0], text.copies, frequent, text.seed, text.deduplicated)  # any that reads them
    scorer = public_model(scores.scorer, place)
    config = _config(cell, scale, place, RunFolder(_scores_folder(place) / "no run").root)
    folder = private_folder(_scores_folder(place))
    scored(
        config,
        RunFolder(folder),
        KeyedRandomness(key_of(experiment_seed(0))),
        ScorerOptions(scorer.model, config.model.length),
        scorer.rho,
        SilentReporter(),
        folder / scores.name,
    )
    return {"kinds": kinds_of_lines(CorpusFiles(place.corpora).train(text), folder / scores.name, scale.threshold)}


def kinds_of_lines(text: Path, scores: Path, threshold: float) -> dict[str, Any]:
    """What each kind of line has: its documents' numbers of lines and of those that are private-like, and the mean rho.

    Args:
        text: the private text, whose lines have the order of its file.
        scores: of its units, a line each, which have the order of their ids.

    Raises:
        ValueError: these are not the scores of this text.
    """
    units = group_units(read_records(Source(text, "jsonl", id_field="id")), UnitKind("record"))
    lines: dict[str, dict[str, list[float]]] = {}
    for unit, score in zip(units, read_scores(scores), strict=True):
        if unit.unit_id != score.id:
            raise ValueError(f"{scores}: the scores are not those of {text}")
        line = Record(unit.unit_id.rpartition("#")[0], None, *unit.texts)
        documents = lines.setdefault(kind_of(line), {})
        documents.setdefault(line.document_id.rsplit("-", 1)[0], []).append(score.rho)
    return {
        kind: {
            "lines": [len(rho) for rho in documents.values()],
            "private_like": [sum(value >= threshold for value in rho) for rho in documents.values()],
            "mean_rho": float(np.mean(list(itertools.chain.from_iterable(documents.values())))),
        }
        for kind, documents in lines.items()
    }


def _scores_folder(place: Place) -> Path:
    return place.out / "scores"


def _trie_file(place: Place) -> Path:
    """The canary's candidates in the pieces that all models share."""
    return place.out / "trie.npz"


def _config(cell: Cell, scale: Scale, place: Place, run: Path) -> RunConfig:
    start, scorer = public_model("public", place), public_model(cell.scorer, place)
    return config_of(cell, scale, CorpusFiles(place.corpora), start, scorer, run)


def _cell(cell: Cell, scale: Scale, place: Place) -> dict[str, Any]:
    """Its run goes on where it was stopped, and is removed when it is measured."""
    folder = RunFolder(place.runs / cell.name)
    config = with_public_key(_config(cell, scale, place, folder.root), experiment_seed(cell.seed))
    if cell.is_adaptive:
        with begin(config):
            if not scored_folder(folder).exists():
                with atomic_folder(scored_folder(folder)) as partial:  # the run takes what is there for its own
                    shutil.copytree(_scores_folder(place) / cell.scores.name, partial, dirs_exist_ok=True)
    with open_run(config) as state:
        walk(state, until="training")
        found = {
            "cell": dataclasses.asdict(cell),
            "epsilon": _epsilon(state),
            "epsilon_of_rho": _bands(state),
            "test": {text: _test(state, CorpusFiles(place.corpora).test_documents(text)) for text in TEXTS},
            "exposure": _exposure(state, _trie_file(place), scale.secret_of(cell.seed)),
        }
    shutil.rmtree(folder.root)
    return found


def _trial(trial: Trial, scale: Scale, place: Place) -> dict[str, Any]:
    """A learning rate, by the losses of held-out public text, before and after."""
    folder, files = RunFolder(place.runs / trial.name), CorpusFiles(place.corpora)
    start = public_model("public", place)
    config = with_public_key(trial_config(trial, scale, files, start, folder.root), experiment_seed(0))
    with open_run(config) as state:
        walk(state, until="training")
        tests = {text: _test(state, files.trial_documents(text)) for text in TEXTS}
    shutil.rmtree(folder.root)
    begun = {text: _begun(start, scale, files.trial_documents(text)) for text in TEXTS}
    return {
        "trial": dataclasses.asdict(trial),
        "loss": {text: test["loss"] for text, test in tests.items()},
        "before": {text: test["loss"] for text, test in begun.items()},
    }


def _begun(start: PublicModel, scale: Scale, test: TestDocuments) -> dict[str, Any]:
    """The public model's loss."""
    given, streams = read_given(start.model), KeyedRandomness(bytes(32))
    stream = tokenize_units(test.units, given.tokenizer, given.special, scale.model["length"], streams)
    model = load_folder(GPT2LMHeadModel, start.model)
    return _measured(causal_lm.score_units({"model": model}, stream, streams)["model"], test)


def _epsilon(state: RunState) -> float:
    """The worst case; infinite where text is read without DP, and of the literal form."""
    return joint_epsilon(state.mechanisms.spends_with_secret_key(), DELTA)


def _bands(state: RunState) -> list[dict[str, Any]]:
    """Epsilon as a public function of rho; of the certified forms."""
    found = epsilon_of_rho(state.mechanisms.spends_with_secret_key(), DELTA, "add-or-remove")
    return [{"begin": band.begin, "end": band.end, "epsilon": band.epsilon} for band in found]


def _test(state: RunState, test: TestDocuments) -> dict[str, Any]:
    """Loss (mean nats a token) and perplexity of a test text, and what its intervals are made from: nats of each document."""
    model = state.trained_model(state.mechanisms.phases[-1].name)
    losses = causal_lm.score_units({"model": model}, tokenized(state, test.units), state.streams)["model"]
    return _measured(losses, test)


def _measured(losses: causal_lm.UnitLosses, test: TestDocuments) -> dict[str, Any]:
    exact = causal_lm.perplexities(losses, *causal_lm.text_sizes(test.units))
    return {
        "loss": float(losses.nats_U.sum() / losses.tokens_U.sum()),
        "perplexity": exact.per_token,
        "perplexity_per_word": exact.per_word,
        "bits_per_byte": exact.bits_per_byte,
        "document_nats": np.bincount(test.document_U, losses.nats_U).tolist(),
        "document_tokens": np.bincount(test.document_U, losses.tokens_U).tolist(),
    }


def _exposure(state: RunState, trie: Path, secret: int) -> dict[str, Any]:
    model = state.trained_model(state.mechanisms.phases[-1].name)
    return _exposure_of(model, trie, state.special.start, secret)


def _exposure_of(model: PreTrainedModel, trie: Path, start: int, secret: int) -> dict[str, Any]:
    """The exposure of the one canary, by its exact rank among all candidates."""
    model.eval()
    scores_N = score_candidates(scorer_of(model), Trie.load(trie), [start])
    found = candidate_exposure(scores_N, [secret])
    return {"bits": found.max_bits, "null_bits": found.null_max_bits, "p_value": found.max_p_value}


def _public(name: ScorerName, scale: Scale, place: Place) -> dict[str, Any]:
    """A public model before any private text, as a model and as a scorer; and what needs no model at all.

    The unigram model is counted on the test text itself: the best that counting words could do.
    """
    public = train_public(name, scale, place)
    given = read_given(public.model)
    trie = _trie_file(place)
    if not trie.exists():
        write_atomically(trie, build_trie(given.tokenizer, scale.canary).save)
    model = load_folder(GPT2LMHeadModel, public.model)
    tests = {}
    for text in TEXTS:
        streams, test = KeyedRandomness(bytes(32)), CorpusFiles(place.corpora).test_documents(text)
        stream = tokenize_units(test.units, given.tokenizer, given.special, scale.model["length"], streams)
        tables = {
            "model": model,
            "unigram": causal_lm.unigram(stream, given.special.size),
            "uniform": causal_lm.uniform(given.special.size),
        }
        tests[text] = {
            name: _measured(loss, test) for name, loss in causal_lm.score_units(tables, stream, streams).items()
        }
    scorer = ScorerOptions(public.model, scale.model["length"]).load()
    asked = [scale.canary_text(seed) for seed in range(MOST_SEEDS)]
    canaries = [one.log_perplexity for one in scorer.score(asked)]
    return {
        "test": tests,
        "canary_log_perplexity": canaries,
        "canary_rho": public.rho.of(canaries).tolist(),
        "lower": public.rho.lower,
        "upper": public.rho.upper,
        "exposure": _exposure_of(model, trie, given.special.start, scale.secret),
    }
