"""Screening a corpus: two streams and what is held out, the same files whatever the workers and however often it is killed."""

from __future__ import annotations

import dataclasses
import gzip
import json
import os
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

from tacit.corpus.records import Record, identity
from tacit.corpus.units import Unit, split_held_out
from tacit.errors import DataError, UsageError
from tacit.randomness import KeyedRandomness
from tacit.screening.corpus import ScreenPlan, screen_corpus
from tacit.screening.policy import package_policy
from tacit.screening.receipt import Counts, Receipt
from tacit.screening.redact import MASK
from tacit.screening.split import data_points, reserve_mask
from tacit.screening.work import _readable

STREAMS = KeyedRandomness(bytes(range(32)))
FILES = ("public.jsonl", "private.jsonl", "held_out.jsonl")
LINES = ScreenPlan(data_point="line", deduplicate="exact", held_out=0.2)
SECRETS = [
    "Jennifer Lopez",
    "415-555-2671",
    "4111 1111 1111 1111",
    "jo@example.com",
    "zq@sentinel.org",
    "836-35527-7547",
]


def records(count: int = 600) -> list[Record]:
    """Dialogues of a few turns, some of them safe, some with secrets, some repeated; three records a document, few users."""
    turns = [
        "Hello, how can I help you today?",
        "I am Jennifer Lopez.",
        "My number is 415-555-{0:04}, call me.",
        "Thank you very much.",
        "What about order 836-35527-{0:04}?",
        f"It says {MASK} there.",
        "The zorblax is late.",
    ]
    texts = ["\n".join(turns[(number + step) % 7].format(number % 97) for step in range(3)) for number in range(count)]
    return [
        Record(f"d{number // 3}", f"u{number % 5}" if number % 3 else None, text) for number, text in enumerate(texts)
    ]


def lines_of(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def contents(folder: Path) -> dict[str, bytes]:
    return {name: (folder / name).read_bytes() for name in FILES}


def screen(folder: Path, corpus: Sequence[Record], plan: ScreenPlan = LINES, **options: Any) -> Receipt:
    return screen_corpus(corpus, plan, folder, STREAMS, **options)


@pytest.fixture(scope="module")
def screened(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Receipt]:
    """The corpus screened by this process, at once."""
    folder = tmp_path_factory.mktemp("reference") / "screened"
    return folder, screen(folder, records())


# what is written -----------------------------------------------------------------------------------------------------


def test_every_data_point_is_in_exactly_one_stream_in_order(screened: tuple[Path, Receipt]) -> None:
    """Against a loop without chunks, batches and files."""
    policies = package_policy("balanced"), package_policy("conservative")
    seen: set[str] = set()
    expected: dict[str, list[dict[str, Any]]] = {name: [] for name in FILES}
    number: dict[str, int] = {}
    units = {record.document_id: Unit(record.document_id, ()) for record in records()}
    held_out = {unit.unit_id for unit in split_held_out(list(units.values()), 0.2, STREAMS.child("corpus"))[1]}
    for record in records():
        own = {"document": record.document_id} | ({"user": record.user_id} if record.user_id else {})
        apart = record.document_id in held_out
        for piece in [record.text] if apart else data_points(record.text, "line"):
            ordinal = number[record.document_id] = number.get(record.document_id, -1) + 1
            raw = reserve_mask(piece)
            text = raw
            for start, end in reversed(_runs(policies[0].spans(raw))):
                text = text[:start] + MASK + text[end:]
            marked = bool(policies[0].spans(raw) or policies[1].spans(raw))
            if not apart and text in seen:
                text = MASK
            seen |= set() if apart else {text}
            stream = "held_out" if apart else "private" if marked or MASK in text else "public"
            values = {"id": f"{record.document_id}#{ordinal}", **own, "text": record.text if apart else text}
            expected[f"{stream}.jsonl"].append(values)
    folder, _ = screened
    assert {name: lines_of(folder / name) for name in FILES} == expected
    assert all(expected.values())


def _runs(spans: Sequence[Any]) -> list[tuple[int, int]]:
    """Maximal runs, character by character."""
    inside = sorted({place for span in spans for place in range(span.start, span.end)})
    starts = [place for place in inside if place - 1 not in inside]
    ends = [place + 1 for place in inside if place + 1 not in inside]
    return list(zip(starts, ends, strict=True))


def test_no_secret_that_pi_marks_is_in_an_output(tmp_path: Path) -> None:
    """Each planted in a sentence of its own; the policy must mark them, else the test says nothing."""
    policy = package_policy("balanced")
    texts = [f"Please note that {secret} is mine." for secret in SECRETS]
    assert all(any(span.start <= 17 for span in policy.spans(text)) for text in texts)
    corpus = [Record(f"d{number}", None, f"Hello.\n{text}\n{text}") for number, text in enumerate(texts)]
    receipt = screen(tmp_path / "out", corpus, dataclasses.replace(LINES, held_out=0))
    written = b"".join(path.read_bytes() for path in (tmp_path / "out").iterdir()).decode()
    assert [secret for secret in SECRETS if secret in written] == []
    assert receipt.counts.masks == 2 * len(SECRETS)
    assert (receipt.counts.public, receipt.counts.duplicates) == (1, len(SECRETS) - 1 + 2 * len(SECRETS) - 1)


def test_the_receipt_counts_what_is_there(screened: tuple[Path, Receipt]) -> None:
    folder, receipt = screened
    counts, public, private = receipt.counts, lines_of(folder / FILES[0]), lines_of(folder / FILES[1])
    assert counts.records == len(records())
    assert counts.held_out == len(lines_of(folder / FILES[2])) > 50
    assert (counts.public, counts.private) == (len(public), len(private))
    assert counts.data_points == counts.public + counts.private == 3 * (counts.records - counts.held_out)
    assert counts.only_mask == sum(line["text"] == MASK for line in private) >= counts.duplicates > 0
    assert counts.public_characters == sum(len(line["text"]) for line in public)
    assert counts.private_characters == sum(len(line["text"]) for line in private)
    assert counts.bytes == sum(len(record.text.encode()) for record in records())
    assert 0 < counts.masked_characters < counts.characters
    assert sum(counts.masked_spans.values()) >= counts.masks > 0
    assert counts.unsafe > 0
    assert receipt.deduplication is not None
    assert receipt.deduplication["stability"]["replaced"] == 3
    assert receipt.plan["balanced"]["name"] == "balanced"
    assert receipt == Receipt.from_dict(json.loads((folder / "receipt.json").read_text()))
    assert "Lopez" not in (folder / "receipt.json").read_text()


def test_the_folder_is_the_owners(screened: tuple[Path, Receipt]) -> None:
    folder, _ = screened
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert sorted(path.name for path in folder.iterdir()) == sorted([*FILES, "receipt.json"])
    assert [path.name for path in folder.parent.iterdir()] == [folder.name]


def test_progress_is_in_bytes_of_text(tmp_path: Path) -> None:
    told: list[tuple[int, int]] = []
    receipt = screen(tmp_path / "out", records(), on_progress=lambda done, total: told.append((done, total)))
    assert len(told) == 3
    assert told == sorted(told)
    assert told[-1] == (receipt.counts.bytes, receipt.counts.bytes)


def test_held_out_documents_are_those_of_a_run_without_screening(screened: tuple[Path, Receipt]) -> None:
    """Same rule, same key; and nothing of them is in a stream."""
    folder, _ = screened
    held_out = {line["document"] for line in lines_of(folder / FILES[2])}
    units = [Unit(name, ()) for name in sorted({record.document_id for record in records()})]
    assert held_out == {unit.unit_id for unit in split_held_out(units, 0.2, STREAMS.child("corpus"))[1]}
    assert not held_out & {line["document"] for name in FILES[:2] for line in lines_of(folder / name)}


# two worlds ----------------------------------------------------------------------------------------------------------

Screening = Callable[[Path, list[Record]], dict[str, bytes]]


def ours(folder: Path, corpus: list[Record]) -> dict[str, bytes]:
    screen(folder, corpus, dataclasses.replace(LINES, held_out=0))
    return contents(folder)


def deduplicated_before_redaction(folder: Path, corpus: list[Record]) -> dict[str, bytes]:
    """The known-wrong order, which is the paper's."""
    seen: set[str] = set()
    changed: list[Record] = []
    for record in corpus:
        kept = [MASK if turn in seen else turn for turn in record.text.split("\n")]
        seen |= set(record.text.split("\n"))
        changed.append(dataclasses.replace(record, text="\n".join(kept)))
    screen(folder, changed, dataclasses.replace(LINES, deduplicate="none", held_out=0))
    return contents(folder)


def changes_nothing(screening: Screening, folder: Path) -> bool:
    """Replace one occurrence of a secret that pi catches by another one of another length that pi catches as well."""
    worlds = [records(40), records(40)]
    at = next(number for number, record in enumerate(worlds[0]) if number > 20 and "555-00" in record.text)
    text = worlds[0][at].text
    secret = text[text.index("415-555-") :][:12]
    assert sum(secret in record.text for record in worlds[0]) == 1
    again = dataclasses.replace(worlds[0][at + 1], text=f"My number is {secret}, call me.")
    for world in worlds:
        world[at + 1] = again
    worlds[1][at] = dataclasses.replace(worlds[0][at], text=text.replace(secret, "+1 (212) 555-0187"))
    found = [screening(folder / str(number), world) for number, world in enumerate(worlds)]
    assert worlds[0] != worlds[1]
    assert not any(secret.encode() in content for content in found[0].values())
    return found[0] == found[1]


def test_one_caught_secret_changes_nothing_bit_for_bit(tmp_path: Path) -> None:
    assert changes_nothing(ours, tmp_path / "ours")


def test_deduplication_before_redaction_is_caught(tmp_path: Path) -> None:
    assert not changes_nothing(deduplicated_before_redaction, tmp_path / "wrong")


# workers, kills, and what does not fit -------------------------------------------------------------------------------


def test_two_workers_write_the_same(tmp_path: Path, screened: tuple[Path, Receipt]) -> None:
    receipt = screen(tmp_path / "out", records(), dataclasses.replace(LINES, workers=2))
    assert contents(tmp_path / "out") == contents(screened[0])
    assert receipt.counts == screened[1].counts
    assert receipt.plan == screened[1].plan  # so that a screening can go on with another number of workers


KILLED = """
import os, signal, sys
from pathlib import Path
sys.path.insert(0, sys.argv[3])
import importlib.util
spec = importlib.util.spec_from_file_location("cases", sys.argv[4])
cases = importlib.util.module_from_spec(spec)
sys.modules["cases"] = cases
spec.loader.exec_module(cases)
def tell(done, total):
    if done > total / 2:
        children = Path(f"/proc/{os.getpid()}/task/{os.getpid()}/children")
        print(children.read_text() if children.exists() else "", flush=True)
        os.kill(os.getpid(), signal.SIGKILL)
if __name__ == "__main__":
    plan = cases.dataclasses.replace(cases.LINES, workers=int(sys.argv[2]))
    cases.screen(Path(sys.argv[1]), cases.records(), plan, on_progress=tell, checkpoint_seconds=0)
"""


def killed(folder: Path, workers: int) -> list[int]:
    """Screen in a process that is killed in the middle; the ids of its own processes."""
    script = folder.parent / "killed.py"
    script.write_text(KILLED)
    command = [sys.executable, str(script), str(folder), str(workers), str(Path(__file__).parents[2]), __file__]
    # Not pipes, which workers that live on would hold open; and apart, since Python tells stderr how many semaphores leaked.
    children, errors = folder.parent / "children.txt", folder.parent / "errors.txt"
    with children.open("w") as out, errors.open("w") as err:
        done = subprocess.run(command, stdout=out, stderr=err, check=False)
    assert done.returncode == -signal.SIGKILL, errors.read_text()
    return [int(process) for process in children.read_text().split()]


@pytest.mark.parametrize("workers", [1, 2])
def test_a_killed_screening_goes_on_bit_for_bit(tmp_path: Path, screened: tuple[Path, Receipt], workers: int) -> None:
    folder, partial = tmp_path / "out", tmp_path / "out.partial"
    children = killed(folder, workers)
    assert not folder.exists()
    assert stat.S_IMODE(partial.stat().st_mode) == 0o700
    state = json.loads((partial / "checkpoint.json").read_text())
    assert set(state) == {"plan", "corpus", "counts", "sizes", "document", "number", "seconds"}
    assert set(state["sizes"]) == {"public", "private", "held_out"}
    done = state["counts"]["records"]
    assert 0 < done < len(records())
    for name in FILES:
        with (partial / name).open("ab") as file:
            file.write(b'{"id": "written after the checkpoint')
    told: list[int] = []
    receipt = screen(folder, records(), on_progress=lambda done, total: told.append(done))
    assert contents(folder) == contents(screened[0])
    assert receipt.counts == screened[1].counts
    assert len(told) == 2  # of three chunks the first was not done again
    assert not partial.exists()
    _assert_gone(children)


def _assert_gone(processes: list[int]) -> None:
    """The workers of a killed process end too."""
    deadline = time.monotonic() + 10
    while any(_alive(process) for process in processes):
        assert time.monotonic() < deadline, "workers outlive their parent"
        time.sleep(0.05)


def _alive(process: int) -> bool:
    try:
        return Path(f"/proc/{process}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


def test_a_kill_just_before_the_end(tmp_path: Path, screened: tuple[Path, Receipt]) -> None:
    """The receipt is there, and the folder has not got its name yet."""
    receipt = screen(tmp_path / "out", records())
    os.rename(tmp_path / "out", tmp_path / "out.partial")
    (tmp_path / "out.partial" / "checkpoint.json").write_text("{}")
    assert screen(tmp_path / "out", records()) == receipt
    assert contents(tmp_path / "out") == contents(screened[0])
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == sorted([*FILES, "receipt.json"])


def test_what_is_done_is_not_done_again(screened: tuple[Path, Receipt]) -> None:
    folder, receipt = screened
    before = {path: path.stat().st_mtime_ns for path in folder.iterdir()}
    assert screen(folder, records(), on_progress=lambda done, total: pytest.fail("it is done")) == receipt
    assert {path: path.stat().st_mtime_ns for path in folder.iterdir()} == before


def _stopped(folder: Path, plan: ScreenPlan = LINES) -> None:
    """A screening with a checkpoint that an error stopped."""

    def stop(done: int, total: int) -> None:
        if done > total / 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        screen(folder, records(), plan, on_progress=stop, checkpoint_seconds=0)


def _policy(folder: Path, score: float) -> Path:
    path = folder / "policy.yaml"
    path.write_text(f"{{name: mine, least_score: {score}}}")
    return path


@pytest.mark.parametrize("finished", [True, False])
def test_another_plan_policy_key_or_corpus_is_refused(tmp_path: Path, finished: bool) -> None:
    folder = tmp_path / "out"
    plan = dataclasses.replace(LINES, balanced=_policy(tmp_path, 0.3))
    if finished:
        screen(folder, records(), plan)
    else:
        _stopped(folder, plan)
    kept = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file() and path.name != "policy.yaml"}
    changed = records()
    changed[-1] = dataclasses.replace(changed[-1], text="zqprivate text")
    with pytest.raises(UsageError, match=r"data_point: line -> record"):
        screen(folder, records(), dataclasses.replace(plan, data_point="record"))
    with pytest.raises(UsageError, match=r"deduplicate: exact -> none"):
        screen(folder, records(), dataclasses.replace(plan, deduplicate="none"))
    with pytest.raises(UsageError, match=r"key: "):
        screen_corpus(records(), plan, folder, KeyedRandomness(bytes(32)))
    for other in (changed, records()[:-1], [*records(), changed[-1]]):
        with pytest.raises(DataError, match="corpus is not the one") as error:
            screen(folder, other, plan)
        assert "zqprivate" not in str(error.value)
        assert "\n" not in str(error.value)
    _policy(tmp_path, 0.31)
    with pytest.raises(UsageError, match=r"balanced: mine [0-9a-f]{8} -> mine [0-9a-f]{8}\)"):
        screen(folder, records(), plan)
    assert {path: path.read_bytes() for path in kept} == kept
    _policy(tmp_path, 0.3)
    screen(folder, records(), plan)


def test_damaged_files_are_one_line(tmp_path: Path) -> None:
    folder = tmp_path / "out"
    _stopped(folder)
    with (tmp_path / "out.partial" / "public.jsonl").open("ab") as file:
        file.truncate(3)
    with pytest.raises(DataError, match="shorter than the checkpoint says"):
        screen(folder, records())
    for damaged in ("{", "{}", "[]", '{"counts": {"x": 1}}'):
        (tmp_path / "out.partial" / "checkpoint.json").write_text(damaged)
        with pytest.raises(DataError, match=r"checkpoint\.json: the file is damaged"):
            screen(folder, records())


def test_a_folder_with_something_else_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "thesis.tex").write_text("x")
    with pytest.raises(UsageError, match="use another folder"):
        screen(tmp_path / "out", records())
    assert [path.name for path in tmp_path.rglob("*")] == ["out", "thesis.tex"]


def test_two_at_once_are_refused(tmp_path: Path) -> None:
    def again(done: int, total: int) -> None:
        with pytest.raises(UsageError, match="another process"):
            screen(tmp_path / "out", records())

    screen(tmp_path / "out", records(), on_progress=again)


class Broken:
    """Records of which the last one is malformed."""

    def __iter__(self) -> Iterator[Record]:
        yield from records(10)
        raise DataError("notes.jsonl, line 11: not JSON")


def test_a_malformed_record_shows_before_anything_is_written(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="line 11"):
        screen_corpus(Broken(), LINES, tmp_path / "out", STREAMS)
    assert list(tmp_path.iterdir()) == []


def test_records_that_can_be_read_once_only(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="read twice"):
        screen_corpus(iter(records(3)), LINES, tmp_path / "out", STREAMS)


SAFE, MARKED = [Record("a", None, "Good morning.")], [Record("b", None, "I am Jennifer Lopez.")]


@pytest.mark.parametrize(("corpus", "stream"), [(SAFE, "private"), (MARKED, "public"), ([], "public")])
def test_an_empty_stream_is_one_line_and_leaves_nothing(tmp_path: Path, corpus: list[Record], stream: str) -> None:
    with pytest.raises(DataError, match=f"no data point is {stream}"):
        screen(tmp_path / "out", corpus, ScreenPlan(), checkpoint_seconds=0)
    assert list(tmp_path.iterdir()) == []


def test_a_stream_that_is_not_needed_may_be_empty(tmp_path: Path) -> None:
    assert screen(tmp_path / "out", MARKED, ScreenPlan(), needed=["private"]).counts == Counts(
        1, 0, 1, 20, 14, {"name": 1}, 1, 0, 0, 1, 0, 0, 0, 12, 20
    )


@pytest.mark.parametrize(
    "wrong",
    [{"data_point": "word"}, {"deduplicate": "near"}, {"normalisation": "x"}, {"held_out": 1.0}, {"workers": 0}],
)
def test_impossible_plans(wrong: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match=next(iter(wrong))):
        ScreenPlan(**wrong)


# memory and real text ------------------------------------------------------------------------------------------------

BOUNDED = """
import resource, sys
from pathlib import Path
from tacit.corpus.records import Record
from tacit.randomness import KeyedRandomness
from tacit.screening.corpus import ScreenPlan, screen_corpus
from tacit.screening.policy import PolicyOptions
class Corpus:
    def __iter__(self):
        for number in range(int(sys.argv[2])):
            yield Record(f"d{number}", None, f"Number {number} is here. " + "Good morning, and thank you. " * 340 + "\\n")
screen_corpus(Corpus(), ScreenPlan(balanced=Path(sys.argv[3]), conservative=Path(sys.argv[3]), deduplicate="exact"),
              Path(sys.argv[1]), KeyedRandomness(bytes(32)), needed=[])
status = Path("/proc/self/status")  # what getrusage says on Linux includes the process that started this one
lines = status.read_text().splitlines() if status.exists() else []
kilobytes = [int(line.split()[1]) for line in lines if line.startswith("VmHWM")]
print(kilobytes[0] if kilobytes else resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
"""
MEGABYTES_ALLOWED = 180  # 118 here, for 1, 10, 40 and 100 MB


def peak(folder: Path, megabytes: int) -> float:
    """Peak memory in MB of a process that screens so much text; 10 KB a record."""
    policy = folder / "policy.yaml"
    policy.write_text("{name: few, least_score: 1.0, labels: [badge], patterns: [{label: badge, pattern: '[0-9]{3}'}]}")
    command = [sys.executable, "-c", BOUNDED, str(folder / f"{megabytes}"), str(100 * megabytes), str(policy)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return int(done.stdout) * (1 if sys.platform == "darwin" else 1024) / 1e6


@pytest.mark.slow
def test_memory_does_not_grow_with_the_corpus(tmp_path: Path) -> None:
    assert peak(tmp_path, 10) < MEGABYTES_ALLOWED


@pytest.mark.slow
def test_nor_with_four_times_as_much(tmp_path: Path) -> None:
    assert peak(tmp_path, 40) < MEGABYTES_ALLOWED


def dialogues(data: Path, corpus: str, count: int) -> list[Record]:
    """The first dialogues of a corpus, a turn a line."""
    with gzip.open(data / corpus / f"{corpus}.train.jsonl.gz", "rt", encoding="utf-8") as file:
        values = [json.loads(line) for line in islice(file, count)]
    texts = [one["text"] if corpus == "customersim" else "\n".join(turn[1] for turn in one["turns"]) for one in values]
    return [Record(f"d{number}", None, text) for number, text in enumerate(texts)]


SIZES = [
    ("customersim", "line", "none", (8762, 8265, 0)),
    ("customersim", "line", "exact", (46, 16981, 16904)),
    ("customersim", "line", "unmasked", (8762, 8265, 2191)),
    ("customersim", "record", "none", (0, 2000, 0)),
    ("customersim", "record", "exact", (0, 2000, 0)),
    ("sgd", "line", "none", (11067, 19201, 0)),
    ("sgd", "line", "exact", (6423, 23845, 7005)),
]


@pytest.mark.slow
@pytest.mark.parametrize(("corpus", "data_point", "deduplicate", "sizes"), SIZES)
def test_sizes_of_the_streams(
    data_dir: Path, tmp_path: Path, corpus: str, data_point: Any, deduplicate: Any, sizes: tuple[int, int, int]
) -> None:
    """Public, private, and duplicates among these: 2,000 dialogues."""
    plan = ScreenPlan(data_point=data_point, deduplicate=deduplicate)
    counts = screen(tmp_path / "out", dialogues(data_dir, corpus, 2000), plan, needed=[]).counts
    assert (counts.public, counts.private, counts.duplicates) == sizes
    assert counts.only_mask >= counts.duplicates


def test_a_documents_name_that_is_no_utf_8_can_be_read_again() -> None:
    """Of a folder with a document a file; a screened run read what it had written and ended. 30th attack."""
    name = os.fsdecode(b"Ren\xe9.txt")
    with pytest.raises(DataError, match="surrogate"):
        identity(name, "id_field", "document", "here")
    assert identity(_readable(name), "id_field", "document", "here") == "name in bytes: 52656ee92e747874"
    assert _readable("plain.txt") == "plain.txt"
