"""The public models: where every arm begins, and what scores. Ordinary runs of tacit that read no private text."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tacit.config import RunConfig
from tacit.corpus.readers import read_records
from tacit.corpus.source import Source
from tacit.files import read_json, write_json
from tacit.pipeline.stages import run
from tacit.progress import SilentReporter
from tacit.reproduce.adp.corpora import CorpusFiles
from tacit.reproduce.adp.scale import DELTA, PrivateText, Scale, ScorerName, experiment_seed
from tacit.reproduce.place import Place, with_public_key
from tacit.scoring.public import scorer_folder
from tacit.scoring.rho import PrivacyProbability
from tacit.scoring.scorer import ScorerOptions
from tacit.scoring.scoring import fit_public

__all__ = ["PublicModel", "public_model", "train_public"]

_CONSTANTS = "rho.json"


@dataclass(frozen=True)
class PublicModel:
    """A released model that read public text alone, and the constants of rho under it.

    Args:
        folder: of the run; its certificate says that nothing private was read.
    """

    folder: Path
    rho: PrivacyProbability

    @property
    def model(self) -> Path:
        """The Hugging Face folder."""
        return scorer_folder(self.folder)


def train_public(name: ScorerName, scale: Scale, place: Place) -> PublicModel:
    """Train it, or take the one that is there."""
    folder = _folder(place, name)
    files = CorpusFiles(place.corpora)
    config = _config(scale, place.data, files, folder, _folder(place, "public") if name == "frequent" else None)
    config = with_public_key(config, experiment_seed(0))
    run(config, SilentReporter())
    constants = folder / _CONSTANTS
    if not constants.exists():
        records = list(read_records(Source(files.constants, "jsonl", id_field="id")))
        options = ScorerOptions(scorer_folder(folder), config.model.length)
        rho, _ = fit_public(records, options)
        write_json(constants, {"lower": rho.lower, "upper": rho.upper})
    return public_model(name, place)


def public_model(name: ScorerName, place: Place) -> PublicModel:
    """The one that is there."""
    folder = _folder(place, name)
    stored = read_json(folder / _CONSTANTS)
    return PublicModel(folder, PrivacyProbability(stored["lower"], stored["upper"]))


def _folder(place: Place, name: ScorerName) -> Path:
    return place.out / "public" / name


def _config(scale: Scale, data: Path, files: CorpusFiles, folder: Path, same_tokenizer: Path | None) -> RunConfig:
    """Ordinary training on public text; the private corpus is named, as in every run, and no phase reads it."""
    public: list[dict[str, Any]] = [
        {
            "path": str(data / "medquad" / "medquad.jsonl.gz"),
            "text_field": "answer",
            "id_field": "id",
            "limit": scale.answers,
        },
        *_novels(data, scale.novels),
        {"path": str(files.articles), "id_field": "id"},
    ]
    if same_tokenizer is not None:
        public.append({"path": str(files.canaries), "id_field": "id"})
    vocabulary: dict[str, Any] = {"method": "public", "size": scale.pieces}
    if same_tokenizer is not None:  # the other scorer reads the pieces of the first, so that only its weights differ
        vocabulary = {"method": "given", "path": str(scorer_folder(same_tokenizer))}
    return RunConfig.model_validate(
        {
            "title": folder.name,
            "run": str(folder),
            "privacy": {"unit": "record", "units": scale.units, "budget": {"epsilon": 1.0, "delta": DELTA}},
            "private": {"path": str(files.train(PrivateText(scale.insertions[0], False, 0))), "id_field": "id"},
            "public": public,
            "vocabulary": vocabulary,
            "model": scale.model,
            "phases": [
                {
                    "name": "public",
                    "plan": "plain",
                    "stream": "public",
                    "steps": scale.public_steps,
                    "batch_size": scale.batch,
                    "learning_rate": scale.public_rate,
                    "warmup": 0.05,
                }
            ],
            "evaluation": {"held_out": 0.0},
            "compute": {"threads": 1, "workers": 1, "device": scale.device},
        }
    )


_NOVELS_A_FILE = 33


def _novels(data: Path, novels: int) -> list[dict[str, Any]]:
    """So many of the first files' novels."""
    return [
        {
            "path": str(data / "eltec-eng" / f"eltec-eng-{number}.jsonl.gz"),
            "id_field": "id",
            "max_record_bytes": 10_000_000,
            "limit": min(novels - begin, _NOVELS_A_FILE),
        }
        for number, begin in enumerate(range(0, novels, _NOVELS_A_FILE))
    ]
