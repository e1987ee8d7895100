"""Train a trunk, shadow models or a cell, and measure: of a cell perplexity after every round, then exposure and membership."""

from __future__ import annotations

import dataclasses
import shutil
import time
from typing import Any

import numpy as np
from transformers import PreTrainedModel

from tacit.audit.candidates import candidate_exposure
from tacit.audit.scorers import scorer_of
from tacit.audit.trie import Trie, score_candidates
from tacit.corpus.units import Unit
from tacit.evaluation import causal_lm
from tacit.pipeline.opening import open_run
from tacit.pipeline.records import secrets_of
from tacit.pipeline.release import leave_model
from tacit.pipeline.rows import tokenized
from tacit.pipeline.stages import walk
from tacit.pipeline.state import RunState
from tacit.randomness import KeyedRandomness
from tacit.reproduce.crt.account import epsilons_after, noise_of
from tacit.reproduce.crt.corpora import CorpusFiles, dialogue_of
from tacit.reproduce.crt.keys import experiment_seed
from tacit.reproduce.crt.membership import measure_cells_membership, train_shadows
from tacit.reproduce.crt.runs import config_of, trunk_config, trunk_folder
from tacit.reproduce.crt.scale import Cell, Scale, Shadows, Trunk
from tacit.reproduce.place import Place, with_public_key
from tacit.reproduce.writing import finite
from tacit.runs.folder import RunFolder
from tacit.screening.redact import MASK
from tacit.training.phases import Phase
from tacit.training.sequences import SequenceStream, tokenize_units
from tacit.vocabulary.given import read_given

__all__ = ["baseline_rows", "measure"]


def measure(cell: Cell | Trunk | Shadows, scale: Scale, place: Place) -> dict[str, Any]:
    """The results of a cell, a trunk or shadow models; its run goes on where it was stopped, and is removed when it is measured."""
    begun = time.monotonic()
    files = CorpusFiles(place.corpora / cell.corpus)
    match cell:
        case Trunk():
            found = _trunk(cell, scale, files, place)
        case Shadows():
            found = _shadows(cell, scale, files, place)
        case Cell():
            found = _cell(cell, scale, files, place)
    return finite(found | {"seconds": time.monotonic() - begun})


def _trunk(trunk: Trunk, scale: Scale, files: CorpusFiles, place: Place) -> dict[str, Any]:
    """Leave the model with its tokenizer in a folder of its own; what it makes of the test texts without any private line."""
    run = RunFolder(place.runs / trunk.name)
    config = with_public_key(trunk_config(trunk, scale, files, run.root), f"tacit reproduce crt {trunk.name}")
    with open_run(config) as state:
        walk(state, until="training")
        leave_model(state, trunk_folder(place, trunk))
        texts = _texts(state, state.trained_model("trunk"), files)
    shutil.rmtree(run.root)
    return {"trunk": dataclasses.asdict(trunk), "texts": texts}


def _shadows(shadows: Shadows, scale: Scale, files: CorpusFiles, place: Place) -> dict[str, Any]:
    """Train shadow models in a run with the replicate's key and its cells' tokenizer, none of whose own phases is done."""
    run = RunFolder(place.runs / shadows.name)
    cell = Cell(shadows.corpus, shadows.model, "raw", seed=shadows.seed)
    config = config_of(cell, scale, files, trunk_folder(place, shadows.trunk), noise_of(cell, scale), run.root)
    config = with_public_key(config, experiment_seed(cell.seed, config))
    with open_run(config) as state:
        walk(state, until="vocabulary")
        losses = train_shadows(state, shadows, scale, place.data)
    shutil.rmtree(run.root)
    return {"shadows": dataclasses.asdict(shadows)} | losses


def _cell(cell: Cell, scale: Scale, files: CorpusFiles, place: Place) -> dict[str, Any]:
    run = RunFolder(place.runs / cell.name)
    noise = noise_of(cell, scale)
    config = config_of(cell, scale, files, trunk_folder(place, cell.trunk), noise, run.root)
    config = with_public_key(config, experiment_seed(cell.seed, config))
    with open_run(config) as state:
        walk(state, until="training")
        found = {
            "cell": dataclasses.asdict(cell),
            "noise_multiplier": noise if config.dp_phases else None,
            "rounds": [_round(state, cell, scale, files, number) for number in points(scale)],
            "exposure": _exposure(state, files),
            "membership": measure_cells_membership(state, _last_model(state), cell, scale, place),
        }
    shutil.rmtree(run.root)
    return found


def points(scale: Scale) -> list[int]:
    """The rounds, from 0, after which a model is measured: the last of each share."""
    share = scale.rounds // scale.points
    return list(range(share - 1, scale.rounds, share))


def _last_phase(state: RunState, number: int) -> Phase:
    return [phase for phase in state.mechanisms.phases if phase.round == number][-1]


def _last_model(state: RunState) -> PreTrainedModel:
    return state.trained_model(_last_phase(state, state.config.rounds - 1).name)


def _round(state: RunState, cell: Cell, scale: Scale, files: CorpusFiles, number: int) -> dict[str, Any]:
    """What the model makes of the test texts after a round, and the epsilons of the training up to there."""
    texts = _texts(state, state.trained_model(_last_phase(state, number).name), files)
    return {"round": number + 1, "epsilons": epsilons_after(cell, scale, number + 1, state.config), "texts": texts}


def _texts(state: RunState, model: PreTrainedModel, files: CorpusFiles) -> dict[str, Any]:
    """Perplexities, and the nats and tokens of each test dialogue, whose lines are not independent."""
    dialogues = {dialogue: number for number, dialogue in enumerate(files.test_dialogues())}
    found: dict[str, Any] = {}
    for name, units in files.test_texts().by_name.items():
        losses = causal_lm.score_units({"model": model}, tokenized(state, units), state.streams)["model"]
        exact = causal_lm.perplexities(losses, *causal_lm.text_sizes(units))
        owner_U = np.array([dialogues[dialogue_of(unit)] for unit in units])
        nats_D, tokens_D = (
            np.bincount(owner_U, values_U, len(dialogues)) for values_U in (losses.nats_U, losses.tokens_U)
        )
        found[name] = {
            "perplexity": exact.per_token,
            "perplexity_per_word": exact.per_word,
            "bits_per_byte": exact.bits_per_byte,
            "nats": [round(float(nats), 4) for nats in nats_D],
            "tokens": [int(tokens) for tokens in tokens_D],
        }
    return found


def _exposure(state: RunState, files: CorpusFiles) -> dict[str, Any]:
    model = _last_model(state)
    model.eval()
    scores_N = score_candidates(scorer_of(model), Trie.load(files.trie), [state.special.start])
    return dataclasses.asdict(candidate_exposure(scores_N, secrets_of(state.config, state.streams)))


def baseline_rows(name: str, files: CorpusFiles, scale: Scale) -> list[dict[str, Any]]:
    """Models that know nothing of order: what words occur how often, and not even that."""
    given = read_given(files.tokenizer, (MASK,))
    streams, texts = KeyedRandomness(bytes(32)), files.test_texts()
    length = scale.models["lstm"]["length"]

    def rows_of(units: list[Unit]) -> SequenceStream:
        return tokenize_units(units, given.tokenizer, given.special, length, streams)

    size = given.special.size
    # Counted on the test lines themselves: the best that a unigram model could do.
    tables = {
        "unigram": causal_lm.unigram(rows_of(texts.redacted), size),
        "uniform": causal_lm.uniform(size),
    }
    rows: list[dict[str, Any]] = []
    for model, table in tables.items():
        row: dict[str, Any] = {"corpus": name, "model": model}
        for kind, units in texts.by_name.items():
            losses = causal_lm.score_units({"table": table}, rows_of(units), streams)["table"]
            exact = causal_lm.perplexities(losses, *causal_lm.text_sizes(units))
            row |= {kind: exact.per_token, f"bits_per_byte_{kind}": exact.bits_per_byte}
        rows.append(row)
    return rows
