"""A public corpus whose records count several times: in training alone, and each copy with random choices of its own."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tacit.config import load_config, parse_config
from tacit.corpus.overlap import word_runs
from tacit.corpus.readers import read_records
from tacit.corpus.source import Source
from tacit.errors import UsageError
from tacit.files import read_json
from tacit.pipeline.corpus import public_units
from tacit.pipeline.opening import open_run
from tacit.pipeline.records import source_of
from tacit.pipeline.rows import public_held_out_units, public_rows
from tacit.pipeline.stages import walk
from tacit.reproduce.hoory import stored
from tacit.reproduce.hoory.corpora import left_out

from .keys import begin_with_key
from .small import small_values, write_corpora


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_corpora(tmp_path, patients=40, records=200)
    rows = [json.dumps({"text": f"a played consultation of patient {number} " * 12}) for number in range(200)]
    (tmp_path / "played.jsonl").write_text("\n".join(rows))
    return tmp_path


def read(folder: Path, times: int) -> dict[str, Any]:
    """What a run makes of its public corpora."""
    public = [{"path": str(folder / "public.jsonl")}, {"path": str(folder / "played.jsonl"), "times": times}]
    config = small_values(
        folder, run=str(folder / f"run-{times}"), public=public, vocabulary={"method": "public", "size": 300}
    )
    begin_with_key(config, bytes(32))  # the same records are held out
    with open_run(parse_config(config)) as state:
        walk(state, "vocabulary")
        stream = public_rows(state)
        rows = [stream.ids_ST[stream.rows_of(unit)].tobytes() for unit in range(stream.units)]
        return {
            "words": read_json(state.vocabulary_folder / "released.json"),
            "held out": [unit.texts for unit in public_held_out_units(state)],
            "training": Counter(unit.texts for unit in public_units(state)[0]),
            "played": {unit.texts for unit in public_units(state)[0] if "played" in unit.texts[0]},
            "rows": Counter(rows),
            "keys": stream.keys_U,
        }


def test_a_corpus_counts_several_times_in_training_alone(folder: Path) -> None:
    once, thrice = read(folder, 1), read(folder, 3)
    for same in ("words", "held out", "training", "played"):
        assert once[same] == thrice[same], same
    more = thrice["rows"] - once["rows"]
    assert sum(more.values()) == 2 * len(once["played"]) > 0
    assert set(more.values()) == {2}
    assert not set(once["held out"]) & set(once["training"])
    assert len(set(thrice["keys"])) == len(thrice["keys"]) == len(once["keys"]) + 2 * len(once["played"])


def test_private_text_counts_once(folder: Path) -> None:
    """A unit that is there twice would be in two places of the sampler."""
    values = small_values(folder)
    values["private"]["times"] = 2
    with pytest.raises(UsageError, match=r"private\.times"):
        parse_config(values)
    values = small_values(folder)
    values["public"][0]["times"] = 0
    with pytest.raises(UsageError, match=r"public\.0\.times"):
        parse_config(values)


@pytest.mark.slow
def test_public_text_of_the_clinical_recipes_holds_no_private_note(
    data_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A part of ACI-Bench does: it was played from a note of MTSamples, and is left out."""
    monkeypatch.setenv("TACIT_DATA", str(data_dir))
    notes = stored.notes(data_dir)
    for recipe in ("bert-public", "clinical-bert"):
        config = load_config(Path(__file__).parents[1] / "recipes" / f"{recipe}.yaml")
        own = [options for options in config.public if "clinical-dialog" in options.path]
        assert [options.text_field for options in own] == ["note", "dialogue"]
        texts = [record.text for options in own for record in read_records(source_of(options))]
        assert len(texts) == 2 * (207 - 40)
        assert not _long(notes, left_out(notes, texts))
    everything = read_records(Source(data_dir / "clinical-dialog" / "aci-bench", "csv", text_field="note"))
    assert len(_long(notes, left_out(notes, [record.text for record in everything]))) == 1


def _long(texts: list[str], chosen: set[int]) -> set[int]:
    """Without a note of one line, whose few runs of words are of no one."""
    return {number for number in chosen if len(word_runs(texts[number])) > 10}
