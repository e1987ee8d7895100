from __future__ import annotations

import hashlib
import json
import math
import os
import random
import re
import string
import subprocess
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

import pytest

from tacit.corpus.synthetic import SyntheticPrivate, SyntheticPublic, _patient, expand, write_private, write_public
from tacit.corpus.wordlists.clinical import CONDITIONS, NOTE_GRAMMAR
from tacit.corpus.wordlists.general import EVERYDAY_GRAMMAR, EVERYDAY_TOPICS, HEALTH_GRAMMAR, HEALTH_TOPICS
from tacit.errors import UsageError

Note = dict[str, str]


def rows(path: Path) -> list[Note]:
    return [json.loads(line) for line in path.read_text().splitlines()]


@pytest.fixture(scope="module")
def private(tmp_path_factory: pytest.TempPathFactory) -> tuple[list[Note], list[str]]:
    path = tmp_path_factory.mktemp("private") / "notes.jsonl"
    canaries = write_private(path, SyntheticPrivate())
    return rows(path), canaries


@pytest.fixture(scope="module")
def public(tmp_path_factory: pytest.TempPathFactory) -> list[Note]:
    path = tmp_path_factory.mktemp("public") / "public.jsonl"
    write_public(path, SyntheticPublic())
    return rows(path)


@pytest.fixture(scope="module")
def by_patient(private: tuple[list[Note], list[str]]) -> dict[str, list[str]]:
    grouped: defaultdict[str, list[str]] = defaultdict(list)
    for note in private[0]:
        grouped[note["patient_id"]].append(note["text"])
    return grouped


# Counts and form


def test_default_corpora_have_the_promised_size(
    private: tuple[list[Note], list[str]], public: list[Note], by_patient: dict[str, list[str]]
) -> None:
    notes, _ = private
    assert len(notes) >= 3000
    assert len(by_patient) == 1100
    assert {len(texts) for texts in by_patient.values()} == {2, 3, 4, 5}
    assert all(set(note) == {"note_id", "patient_id", "text"} for note in notes)
    assert len({note["note_id"] for note in notes}) == len(notes)
    assert len(public) == len({record["id"] for record in public}) == 6000
    assert all(set(record) == {"id", "text"} for record in public)


def test_notes_are_of_the_promised_length(private: tuple[list[Note], list[str]]) -> None:
    lengths = sorted(len(note["text"].split()) for note in private[0])
    assert lengths[0] >= 60
    assert lengths[-1] <= 140
    assert lengths[int(0.95 * len(lengths))] <= 120


def test_notes_have_their_sections(private: tuple[list[Note], list[str]]) -> None:
    texts = [note["text"] for note in private[0]]
    assert all("edications" in text and "Assessment and plan: " in text for text in texts)
    assert sum("Chief complaint: " in text and "History: " in text for text in texts) > len(texts) / 2


def test_no_slot_is_left_open(private: tuple[list[Note], list[str]], public: list[Note]) -> None:
    texts = [row["text"] for row in private[0] + public]
    assert not [text for text in texts if re.search(r"[{}|]|  |^ | $|\n", text)]


# Determinism


def digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def test_equal_options_give_equal_bytes_in_any_process(tmp_path: Path) -> None:
    program = (
        "import sys; from pathlib import Path; from tacit.corpus import *;"
        "write_private(Path(sys.argv[1]), SyntheticPrivate(patients=40));"
        "write_public(Path(sys.argv[2]), SyntheticPublic(records=40))"
    )
    digests = set()
    for hash_seed in ("1", "2"):
        paths = [tmp_path / hash_seed / name for name in ("private", "public")]
        environment = {**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": os.pathsep.join(sys.path)}
        subprocess.run([sys.executable, "-c", program, *map(str, paths)], check=True, env=environment)
        digests.add(tuple(map(digest, paths)))
    assert len(digests) == 1


def test_the_seed_changes_the_corpora(tmp_path: Path) -> None:
    canaries = [set(write_private(tmp_path / f"p{i}", SyntheticPrivate(100, (2, 3), 0.1, seed=i))) for i in (0, 1)]
    for i in (0, 1):
        write_public(tmp_path / f"q{i}", SyntheticPublic(50, seed=i))
    assert digest(tmp_path / "p0") != digest(tmp_path / "p1")
    assert digest(tmp_path / "q0") != digest(tmp_path / "q1")
    assert not canaries[0] & canaries[1]


def test_a_larger_corpus_begins_with_the_smaller_one(tmp_path: Path) -> None:
    for patients in (5, 9):
        write_private(tmp_path / str(patients), SyntheticPrivate(patients, canary_fraction=0))
    small, large = rows(tmp_path / "5"), rows(tmp_path / "9")
    assert large[: len(small)] == small


def test_generation_is_fast(tmp_path: Path) -> None:
    start = time.process_time()
    write_private(tmp_path / "private", SyntheticPrivate())
    write_public(tmp_path / "public", SyntheticPublic())
    assert time.process_time() - start < 3


def test_nothing_is_left_behind_when_writing_fails(tmp_path: Path) -> None:
    target = tmp_path / "notes.jsonl"
    target.mkdir()  # os.replace cannot put a file in a directory's place
    with pytest.raises(OSError, match="notes"):
        write_private(target, SyntheticPrivate(patients=2))
    assert [path.name for path in tmp_path.iterdir()] == ["notes.jsonl"]


@pytest.mark.parametrize(
    "options",
    [{"patients": 0}, {"notes_per_patient": (0, 3)}, {"notes_per_patient": (4, 3)}, {"canary_fraction": 1.5}],
)
def test_private_options_out_of_range_are_refused(options: dict[str, object]) -> None:
    with pytest.raises(UsageError, match=next(iter(options))):
        SyntheticPrivate(**options)


def test_public_options_out_of_range_are_refused() -> None:
    with pytest.raises(UsageError, match="records"):
        SyntheticPublic(records=0)


# Identity and canaries


def identity_of(number: int) -> dict[str, str]:
    return _patient(number, 0, random.Random(f"0:patient:{number}")).identity


def test_each_note_repeats_its_patients_identity(by_patient: dict[str, list[str]]) -> None:
    for number, texts in enumerate(by_patient.values()):
        identity = identity_of(number)
        for text in texts:
            assert all(identity[name] in text for name in ("name", "mrn", "dob", "phone", "address"))


def test_record_numbers_belong_to_one_patient_and_phones_to_nobody(by_patient: dict[str, list[str]]) -> None:
    owners: defaultdict[str, set[str]] = defaultdict(set)
    for patient, texts in by_patient.items():
        for text in texts:
            owners[re.search(r"(?:MRN:?|Record number:) (\d{8})\b", text)[1]].add(patient)
            assert re.findall(r"\(\d{3}\) (\d{3}-\d{2})", text) == ["555-01"]
    assert len(owners) == len(by_patient)
    assert all(len(patients) == 1 for patients in owners.values())


def test_canaries_are_distinct_words_of_one_note_each(
    private: tuple[list[Note], list[str]], public: list[Note]
) -> None:
    notes, canaries = private
    assert len(set(canaries)) == len(canaries) == 22  # 2 % of 1,100
    counts = Counter(word.strip(string.punctuation) for note in notes for word in note["text"].split())
    assert all(re.fullmatch("zq[a-z]{8}", canary) for canary in canaries)
    assert len(set("".join(canaries))) >= 20  # 176 letters drawn from 26: fewer would mean a poor secret
    assert [counts[canary] for canary in canaries] == [1] * len(canaries)
    assert len({note["patient_id"] for note in notes if any(c in note["text"] for c in canaries)}) == len(canaries)
    assert {word for word in counts if word.startswith("zq")} == set(canaries)
    assert not any("zq" in record["text"] for record in public)


@pytest.mark.parametrize(("fraction", "count"), [(0, 0), (0.5, 10), (1, 20)])
def test_the_canary_fraction_is_met(fraction: float, count: int, tmp_path: Path) -> None:
    canaries = write_private(tmp_path / "notes", SyntheticPrivate(20, canary_fraction=fraction))
    text = (tmp_path / "notes").read_text()
    assert len(canaries) == count
    assert all(canary in text for canary in canaries)


# Something to learn


def words_of(texts: Sequence[str]) -> list[list[str]]:
    return [re.findall(r"[a-z]+", text.lower()) for text in texts]


def bigram_bits(train: list[list[str]], test: list[list[str]]) -> float:
    """Bits a word of an interpolated bigram model: weights .7, .29, .01 of bigram, unigram, uniform over 1e4 words."""
    unigrams = Counter(word for text in train for word in text)
    bigrams = Counter(pair for text in train for pair in pairwise(text))
    total = sum(unigrams.values())
    bits = [
        -math.log2(0.7 * bigrams[a, b] / max(unigrams[a], 1) + 0.29 * unigrams[b] / total + 0.01 / 1e4)
        for text in test
        for a, b in pairwise(text)
    ]
    return sum(bits) / len(bits)


def test_private_text_has_structure_that_public_text_does_not_teach(
    by_patient: dict[str, list[str]], public: list[Note]
) -> None:
    patients = [words_of(texts) for texts in by_patient.values()]
    train = [text for texts in patients[:900] for text in texts]
    test = [text for texts in patients[900:] for text in texts]
    shuffled = [random.Random(0).sample(text, len(text)) for text in train]
    from_private = bigram_bits(train, test)
    assert bigram_bits(shuffled, test) > from_private + 2  # order tells much about the next word
    assert bigram_bits(words_of([record["text"] for record in public]), test) > from_private + 4


def test_vocabularies_overlap_in_part(private: tuple[list[Note], list[str]], public: list[Note]) -> None:
    notes = [word for text in words_of([note["text"] for note in private[0]]) for word in text]
    known = {word for text in words_of([record["text"] for record in public]) for word in text}
    share = sum(word in known for word in notes) / len(notes)
    assert 0.15 < share < 0.5
    assert {"history", "chest", "pain", "fatigue", "daily", "and", "of", "with"} <= known
    assert not {"mrn", "bid", "prn", "hba", "furosemide", "metformin", "denies", "cxr", "yo"} & known


@pytest.mark.parametrize(
    ("abbreviation", "word"),
    [("T2DM", "metformin"), ("CHF", "furosemide"), ("AF", "apixaban"), ("hypothyroid", "levothyroxine")],
)
def test_conditions_decide_drugs(abbreviation: str, word: str, by_patient: dict[str, list[str]]) -> None:
    joined = [" ".join(texts) for texts in by_patient.values()]
    with_condition = [text for text in joined if re.search(rf"\b{abbreviation}\b", text)]
    treated = [text for text in joined if word in text]
    assert len(treated) >= 10
    assert len(with_condition) < len(joined) / 2
    assert sum(text in with_condition for text in treated) > 0.95 * len(treated)


# The grammars


def test_every_companion_is_a_condition() -> None:
    names = {condition.short for condition in CONDITIONS}
    assert len(names) == len(CONDITIONS) >= 20
    assert all(set(condition.often_with) <= names - {condition.short} for condition in CONDITIONS)
    templates = [condition for condition in CONDITIONS if min(map(len, (condition.symptoms, condition.findings))) < 2]
    assert templates == []


def slots_of(grammar: dict[str, tuple[str, ...]]) -> set[str]:
    slots = {slot for templates in grammar.values() for text in templates for slot in re.findall(r"\{([^}]+)\}", text)}
    return {slot for slot in slots if re.fullmatch("[A-Za-z_]+", slot)}


def test_no_rule_of_a_grammar_is_idle_or_missing() -> None:
    for grammar, topics in ((HEALTH_GRAMMAR, HEALTH_TOPICS), (EVERYDAY_GRAMMAR, EVERYDAY_TOPICS)):
        given = {f"{name}{suffix}" for topic in topics for name in topic for suffix in ("", "_b")} | {"Illness"}
        assert slots_of(grammar) - given == set(grammar) - {"record"}
        assert all(len(words) >= 2 for topic in topics for words in topic.values())
    assert set(NOTE_GRAMMAR) - {"note"} <= slots_of(NOTE_GRAMMAR)


def test_expand_reads_the_notation() -> None:
    rng = random.Random(0)
    grammar = {"noun": ("cat", "{2-4} dogs"), "verb": ("sees {noun}",)}
    seen = {expand("a {noun} {verb} {x|y}", grammar, rng) for _ in range(5000)}
    nouns = r"(cat|[234] dogs)"
    assert all(re.fullmatch(rf"a {nouns} sees {nouns} [xy]", text) for text in seen)
    assert len(seen) == 4 * 4 * 2
    assert all(6.5 <= float(expand("{6.5-9.9}", {}, rng)) <= 9.9 for _ in range(100))
    with pytest.raises(KeyError):
        expand("{absent}", {}, rng)
