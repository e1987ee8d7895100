"""Whether there is a release at all was a function of one unit.

A DP run stopped before it spent anything, with exit code 4, where too few private texts qualified for the membership attack, where no
unit was left for training, where the held-out part was empty, and where screening left no private data point. At the boundary
one unit decides that. The certificate says that whatever happens with one corpus happens with the neighbouring one with a probability
at most e^epsilon times as large plus delta; here something with probability 1 had probability 0: delta is 1.
"""

from __future__ import annotations

import difflib
import json
import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tokenizers import Regex
from tokenizers.normalizers import Replace

from tacit.config import parse_config
from tacit.corpus.synthetic import SyntheticPublic, write_public
from tacit.corpus.units import Unit, split_held_out
from tacit.files import read_json
from tacit.pipeline.records import planted_records
from tacit.randomness import KeyedRandomness

from ..dialogues import PLAIN, dialogue_values
from ..folders import NAMES, save_tokenizer, wordpiece
from ..keys import begin_with_key, key_numbered
from ..small import tacit, write_config

pytestmark = pytest.mark.slow

DELTA = 1e-4
GROUP = 2
LEAST = 4 * GROUP  # pairs with fewer of which the membership attack says nothing


@dataclass(frozen=True)
class Seen:
    """What somebody outside sees of a run, with times and noisy numbers taken out."""

    code: int
    files: tuple[str, ...]
    lines: tuple[str, ...]


def observed(run: Path, config: dict[str, Any], key: int) -> Seen:
    begin_with_key({**config, "run": str(run)}, key)
    done = tacit("run", write_config(run.with_suffix(".yaml"), {**config, "run": str(run)}))
    files = (path.relative_to(run / "release").as_posix() for path in (run / "release").rglob("*"))
    lines = (re.sub(r"\d+(:\d\d)+", "TIME", line) for line in (done.stdout + done.stderr).splitlines())
    # the histogram's noise is the operating system's, which no key of the tests decides
    lines = (re.sub(r"\d+ words released, \d+ pieces", "WORDS", line) for line in lines)
    return Seen(done.returncode, tuple(sorted(files)), tuple(line.replace(str(run), "RUN") for line in lines))


def least_delta(one: Seen, other: Seen, epsilon: float) -> float:
    """A lower bound of delta: of runs whose key is drawn, each of the two certainties is an event of its own.

    >>> least_delta(Seen(0, (), ()), Seen(4, (), ()), 8.0)
    1.0
    """
    probabilities = (1.0, 1.0 if one == other else 0.0)
    if one != other:  # pytest shows it where a test fails
        told = [[str(seen.code), *seen.files, *seen.lines] for seen in (one, other)]
        print(*difflib.unified_diff(*told, lineterm="", n=0), sep="\n", file=sys.stderr)
    return max(0.0, probabilities[0] - 2.718281828**epsilon * probabilities[1])


def write_texts(path: Path, names: Sequence[str]) -> None:
    """A document a name, with a number that is its own."""
    rows = [{"id": name, "text": f"My order is {10_000_000 + 7919 * int(name[1:])}."} for name in names]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


def sides(key: int, count: int, held_out: float) -> tuple[list[str], list[str]]:
    """The names d0, d1, ... by the part of the corpus in which they fall under a key."""
    units = [Unit(f"d{number}", ()) for number in range(count)]
    training, kept = split_held_out(units, held_out, KeyedRandomness(key_numbered(key)).child("corpus"))
    return [unit.unit_id for unit in training], [unit.unit_id for unit in kept]


def dp_values(folder: Path, texts: Path, **sections: Any) -> dict[str, Any]:
    values: dict[str, Any] = {
        "title": "a predicate",
        "privacy": {"unit": "document", "units": 60, "budget": {"epsilon": 8.0, "delta": DELTA}},
        "private": {"path": str(texts), "id_field": "id"},
        "public": [{"path": str(folder / "public.jsonl"), "id_field": "id"}],
        "vocabulary": {"method": "public", "size": 300},
        "model": {"kind": "lstm", "layers": 1, "width": 8, "length": 24},
        "phases": [
            {
                "name": "private",
                "plan": "dp",
                "stream": "private",
                "steps": 2,
                "expected_batch": 10,
                "clip_norm": 0.5,
                "learning_rate": 1e-3,
            }
        ],
        "evaluation": {"held_out": 0.4, "public_sequences": 8},
        "compute": {"threads": 1, "workers": 1, "checkpoint_seconds": 30.0},
    }
    return {**values, **sections}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("existence")
    write_public(folder / "public.jsonl", SyntheticPublic(records=200))
    return folder


def test_one_unit_decides_whether_the_membership_attack_has_texts_enough(folder: Path) -> None:
    training, kept = sides(1, 60, 0.4)
    seen, said = [], []
    audit = {"canaries": 2, "copies": 1, "digits": 2, "membership": {"pairs": 30, "group_size": GROUP}}
    audit |= {"control": True, "control_steps": 2}
    for number in (LEAST, LEAST - 1):
        write_texts(folder / f"{number}.jsonl", [*training[:20], *kept[:number]])
        run = folder / f"members-{number}"
        seen.append(observed(run, dp_values(folder, folder / f"{number}.jsonl", audit=audit), 1))
        said.append(read_json(run / "private" / "membership.json"))
    assert set(said[0]) == {"control without DP", "released model"}  # the neighbour has texts enough
    assert said[1] == {"undecided": "undecided: too few texts qualify"}
    assert seen[0].code == 0
    assert len(seen[0].files) > 5
    assert seen[0] == seen[1]
    assert least_delta(*seen, 8.0) <= DELTA  # it was 1
    curators = (folder / f"members-{LEAST - 1}" / "private" / "report" / "report.html").read_text()
    released = folder / f"members-{LEAST - 1}" / "release"
    assert "undecided: too few texts qualify" in curators
    assert not any(b"too few texts" in path.read_bytes() for path in released.rglob("*") if path.is_file())
    audited = tacit("audit", folder / f"members-{LEAST - 1}")
    assert audited.returncode == 0, audited.stderr
    assert "membership is undecided: too few texts qualify" in audited.stdout
    as_json = json.loads(tacit("audit", folder / f"members-{LEAST - 1}", "--json").stdout)
    assert as_json["membership"] == said[1]


@pytest.mark.parametrize("kind", ["lstm", "bert"])
def test_one_unit_decides_whether_the_control_diverges(folder: Path, kind: str) -> None:
    """It is trained without noise, and at a rate at which it diverges with a unit and not without it there was no release with it.

    Here both sides have the same text, and one control a rate at which every text makes it diverge.
    """
    training, kept = sides(5, 60, 0.4)
    write_texts(folder / f"control-{kind}.jsonl", [*training, *kept])
    model = {"kind": kind, "layers": 1, "width": 8, "length": 24, **({} if kind == "lstm" else {"heads": 2})}
    audit: dict[str, Any] = {"canaries": 2, "control": True, "control_steps": 2, "contexts": 2}
    if kind == "lstm":
        audit |= {"copies": 1, "digits": 2, "membership": {"pairs": 30, "group_size": GROUP}}
    seen = []
    for name, rate in (("learns", 1e-3), ("diverges", 1e30)):
        values = dp_values(
            folder, folder / f"control-{kind}.jsonl", model=model, audit={**audit, "control_learning_rate": rate}
        )
        seen.append(observed(folder / f"control-{kind}-{name}", values, 5))
    assert seen[0].code == 0, seen[0].lines[-1]
    assert seen[0] == seen[1]
    assert least_delta(*seen, 8.0) <= DELTA  # it was 1
    page = (folder / f"control-{kind}-diverges" / "private" / "report" / "report.html").read_text()
    assert "undecided" in page.lower()  # a control that learned nothing shows nothing


def test_one_document_has_the_id_of_a_planted_one(folder: Path) -> None:
    """Two units of one id are refused, and a canary was called "canary 0.3": who wrote that into a file stopped the run."""
    names = [f"d{number}" for number in range(20)]
    vocabulary = {"method": "histogram", "size": 300, "max_words": 4, "noise_stddev": 3.0, "threshold": 24}
    audit = {"canaries": 2, "copies": 3, "digits": 2, "control": False}
    planted = planted_ids(dp_values(folder, folder / "none.jsonl", audit=audit), 3)
    extra = {
        "nothing": [],
        "former": [f"canary {n}.{attempt}" for n in range(2) for attempt in range(9)],
        "knows": planted,
    }
    seen = {}
    for name, ids in extra.items():
        write_texts(folder / f"{name}.jsonl", names)
        with (folder / f"{name}.jsonl").open("a") as file:
            file.writelines(json.dumps({"id": planted_id, "text": "hello"}) + "\n" for planted_id in ids)
        values = dp_values(folder, folder / f"{name}.jsonl", audit=audit, vocabulary=vocabulary)
        seen[name] = observed(folder / f"planted-{name}", values, 3)
    assert seen["nothing"].code == 0
    assert least_delta(seen["nothing"], seen["former"], 8.0) <= DELTA  # it was 1
    # nor can who has the key, of which the ids are a function: a run's units are counted one by one, whatever they are called
    assert least_delta(seen["nothing"], seen["knows"], 8.0) <= DELTA
    assert not set(planted) & set(planted_ids(dp_values(folder, folder / "none.jsonl", audit=audit), 4))


def planted_ids(values: dict[str, Any], key: int) -> list[str]:
    config = parse_config({**values, "run": "nowhere"})
    return [record.document_id for record in planted_records(config, KeyedRandomness(key_numbered(key)))]


@pytest.mark.parametrize("kind", ["lstm", "bert"])
def test_one_unit_decides_whether_a_part_of_the_corpus_is_empty(folder: Path, kind: str) -> None:
    """A corpus of one unit in each part, and the two in which one of them is not."""
    training, kept = sides(2, 60, 0.4)
    model = {"kind": kind, "layers": 1, "width": 8, "length": 24, **({} if kind == "lstm" else {"heads": 2})}
    audit = {"canaries": 2, "control": True, "control_steps": 2, "contexts": 2}
    audit |= {"copies": 1, "digits": 2} if kind == "lstm" else {}
    seen = []
    for part, texts in (("both", [training[0], kept[0]]), ("training", training[:1]), ("held-out", kept[:1])):
        name = f"{kind}-{part}"
        write_texts(folder / f"{name}.jsonl", texts)
        values = dp_values(folder, folder / f"{name}.jsonl", model=model, audit=audit)
        seen.append(observed(folder / name, values, 2))
    assert seen[0].code == 0, seen[0].lines[-1]
    for other in seen[1:]:
        assert seen[0] == other
        assert least_delta(seen[0], other, 8.0) <= DELTA


def test_one_secret_decides_whether_screening_leaves_a_private_data_point(folder: Path) -> None:
    """The neighbour has another record in place of the one with the secret."""
    seen = []
    for name, last in (("secret", "Thank you for your help, zq@example.org."), ("none", PLAIN[1])):
        rows = [{"id": f"d{number}", "text": text} for number, text in enumerate([*PLAIN[:2] * 3, last])]
        place = folder / name
        place.mkdir()
        (place / "dialogues.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
        values = dialogue_values(
            place,
            20,
            title="a predicate",
            rounds=1,
            screening={"data_point": "line", "gamma": 0.01, "delta2": 0.00005},
            evaluation={"held_out": 0.0},
            phases=[
                {"name": "public", "plan": "plain", "stream": "screened", "steps": 2, "batch_size": 4, "learning_rate": 1e-3},
                {"name": "private", "plan": "dp", "stream": "private", "steps": 2, "expected_batch": 2, "clip_norm": 0.5,
                 "learning_rate": 1e-3},
            ],
        )  # fmt: skip
        seen.append(observed(place / "run", values, 3))
        private = (place / "run" / "private" / "screened" / "private.jsonl").read_text()
        assert len(private.splitlines()) == (1 if name == "secret" else 0)
    assert seen[0].code == 0, seen[0].lines[-1]
    assert seen[0] == seen[1]


def test_the_measure_sees_a_refusal() -> None:
    """The known-wrong version: what the project did with such a pair."""
    done, refused = Seen(0, ("model",), ("done",)), Seen(4, (), ("too few texts",))
    assert least_delta(done, refused, 8.0) == 1.0
    assert least_delta(done, done, 8.0) == 0.0


def test_one_text_is_too_much_for_the_tokenizer(folder: Path) -> None:
    """An expression of its normalizer backtracks, and the library panics; the run stopped in one line, and one text decided that."""
    tokenizer = wordpiece()
    tokenizer.normalizer = Replace(Regex("(x+x+)+y"), "y")
    given = save_tokenizer(tokenizer, folder / "backtracks", **NAMES)
    training, _ = sides(4, 60, 0.4)
    write_texts(folder / "easy.jsonl", training)
    rows = (folder / "easy.jsonl").read_text().splitlines()
    hard = json.dumps({"id": training[0], "text": 40 * "x"})
    (folder / "hard.jsonl").write_text("\n".join([hard, *rows[1:]]) + "\n")
    vocabulary = {"method": "given", "path": str(given), "public": True}
    seen = [
        observed(folder / f"{name}-run", dp_values(folder, folder / f"{name}.jsonl", vocabulary=vocabulary), 4)
        for name in ("easy", "hard")
    ]
    assert [one.code for one in seen] == [0, 0]
    assert seen[0].files == seen[1].files
    assert any(
        "retry-limit" in line for line in seen[1].lines
    )  # Rust's own words, for the curator: the text was too much


@pytest.mark.parametrize("odd", ["text", "id"])
def test_one_record_grows_when_it_is_written_down(folder: Path, odd: str) -> None:
    """What screening writes is read again; a record of control characters is six times as long there, and was over the limit."""
    seen = []
    for name in ("usual", "odd"):
        place = folder / f"grows-{odd}-{name}"
        place.mkdir()
        rows = [
            {"id": f"d{number}", "text": f"{text}\nMail zq{number}@example.org"}
            for number, text in enumerate(PLAIN * 3)
        ]
        if name == "odd":
            rows[-1][odd] = "Mail zq@example.org " + 900 * "\x01" if odd == "text" else 5000 * "i"
        pq.write_table(pa.table({key: [row[key] for row in rows] for key in rows[0]}), place / "dialogues.parquet")
        private = {"path": str(place / "dialogues.parquet"), "id_field": "id", "max_record_bytes": 1000}
        phase = {
            "name": "private",
            "plan": "dp",
            "stream": "private",
            "steps": 2,
            "expected_batch": 2,
            "clip_norm": 0.5,
        }
        values = dialogue_values(
            place,
            20,
            title="a predicate",
            rounds=1,
            private=private,
            screening={"data_point": "line", "gamma": 0.01, "delta2": 0.00005},
            evaluation={"held_out": 0.0},
            phases=[{**phase, "learning_rate": 1e-3}],
        )
        seen.append(observed(place / "run", values, 3))
    assert seen[0].code == 0, seen[0].lines[-1]
    assert seen[0] == seen[1]
