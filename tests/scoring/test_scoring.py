"""Scoring a corpus to disk: what is written, what one record moves, and that a killed scoring ends with the same bytes."""

from __future__ import annotations

import json
import math
import os
import signal
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel

from tacit.corpus.records import Record
from tacit.errors import DataError, TacitError, UsageError
from tacit.models.kinds import load_model
from tacit.scoring import scoring
from tacit.scoring.plot import plot_scores
from tacit.scoring.rho import PrivacyProbability
from tacit.scoring.scorer import Scorer, ScorerOptions
from tacit.scoring.scores import SCORES, Score, read_scores, rho_in_order
from tacit.scoring.scoring import fit_public, score_corpus

from ..folders import TEXTS, edit_json, gpt2_folder, lstm_folder
from ..small import SENTINEL
from ..started import called
from .told import Told

RHO = PrivacyProbability(5.690, 5.715)  # of the small folder's model


@pytest.fixture(scope="module")
def options(tmp_path_factory: pytest.TempPathFactory) -> ScorerOptions:
    return ScorerOptions(gpt2_folder(tmp_path_factory.mktemp("scorer")))


@pytest.fixture(autouse=True)
def small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scoring, "_CHUNK_RECORDS", 8)


def some_records(count: int = 60) -> list[Record]:
    words = " ".join(TEXTS).split()
    texts = [" ".join(words[number % 5 :: 1 + number % 4] * (number % 7)) for number in range(count)]
    return [Record(f"d{number}", None, f"{text} {SENTINEL}" if text else "") for number, text in enumerate(texts)]


def files_in(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.mark.slow
def test_what_is_written(tmp_path: Path, options: ScorerOptions) -> None:
    records, out = some_records(), tmp_path / "scores"
    told: list[tuple[int, int]] = []
    score_corpus(records, options, RHO, out, lambda done, total: told.append((done, total)))
    lines = [json.loads(line) for line in (out / SCORES).read_text().splitlines()]
    scores = options.load().score([record.text for record in records])
    assert [line["id"] for line in lines] == [record.document_id for record in records]
    assert all(line.keys() == {"id", "log_perplexity", "rho"} for line in lines)
    values = [score.log_perplexity if score.tokens else None for score in scores]
    assert [line["log_perplexity"] for line in lines] == values
    assert None in values
    assert [line["rho"] for line in lines] == RHO.of([score.log_perplexity for score in scores]).tolist()
    assert len({line["rho"] for line in lines}) > 5
    size = sum(len(record.text.encode()) for record in records)
    assert told[-1] == (size, size)
    assert [done for done, _ in told] == sorted({done for done, _ in told})
    assert sorted(files_in(out)) == ["receipt.json", "rho.png", "rho.svg", SCORES]
    assert stat.S_IMODE(out.stat().st_mode) == 0o700
    assert {stat.S_IMODE(path.stat().st_mode) for path in out.iterdir()} == {0o600}
    assert not any(SENTINEL.encode() in content for content in files_in(out).values())
    before = files_in(out)
    score_corpus(records, options, RHO, out)
    assert files_in(out) == before


@pytest.mark.slow
def test_one_record_moves_no_other_line(tmp_path: Path, options: ScorerOptions) -> None:
    """Neighbouring corpora: a record replaced, added or removed, which moves all chunks and batches behind it."""
    records = some_records()
    other = Record("new", None, "a long text about a rare disease " * 9)
    neighbours = {
        "same": records,
        "replaced": [*records[:3], other, *records[4:]],
        "added": [other, *records],
        "removed": records[1:],
    }
    found: dict[str, dict[str, bytes]] = {}
    for name, corpus in neighbours.items():
        score_corpus(corpus, options, RHO, tmp_path / name)
        lines = (tmp_path / name / SCORES).read_bytes().splitlines()
        found[name] = {json.loads(line)["id"]: line for line in lines}
    for name in ("replaced", "added", "removed"):
        shared = found["same"].keys() & found[name].keys()
        assert len(shared) >= len(records) - 1
        assert all(found[name][one] == found["same"][one] for one in shared)


@pytest.mark.slow
def test_workers_change_the_speed_alone(tmp_path: Path, options: ScorerOptions) -> None:
    for workers in (1, 2):
        score_corpus(some_records(), options, RHO, tmp_path / str(workers), workers=workers)
    assert files_in(tmp_path / "1") == files_in(tmp_path / "2")


def test_which_process_scores_hangs_on_no_size(
    tmp_path: Path, options: ScorerOptions, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Known wrong: from a megabyte on other processes scored, with other libraries or last bits. 28th attack, TACIT-47."""
    monkeypatch.setattr(scoring, "_Worker", Told)
    score_corpus(some_records()[:1], options, RHO, tmp_path / "scores", workers=2)
    assert {score.log_perplexity for score in read_scores(tmp_path / "scores")} == {1.0}


@contextmanager
def settings_of_a_program() -> Iterator[None]:
    """What a program may have chosen before it calls tacit; its worker processes know nothing of it."""
    torch.set_float32_matmul_precision("medium")
    torch.set_default_dtype(torch.float64)
    try:
        torch.backends.mkldnn.set_flags(False)
        with sdpa_kernel(SDPBackend.MATH):
            yield
    finally:
        torch.backends.mkldnn.set_flags(True)
        torch.set_float32_matmul_precision("highest")
        torch.set_default_dtype(torch.float32)


@pytest.mark.slow
@pytest.mark.parametrize("make", [gpt2_folder, lstm_folder])
def test_a_programs_own_settings_change_no_score(tmp_path: Path, make: Callable[[Path], Path]) -> None:
    """What another process could not score is scored here, with others: they would have other scores. 27th and 28th attack."""
    options = ScorerOptions(make(tmp_path / "scorer"))
    texts = [" ".join(TEXTS) * number for number in range(1, 5)]
    ids_BT = torch.randint(0, 50, (4, 16), generator=torch.Generator().manual_seed(0))
    model = load_model(options.folder).eval()
    with torch.no_grad(), settings_of_a_program():
        chosen = model(ids_BT).logits
        score_corpus(some_records(), options, RHO, tmp_path / "chosen")
        scores = options.load().score(texts)
    with torch.no_grad():
        assert not torch.equal(model(ids_BT).logits, chosen), "the settings have no power here"
    score_corpus(some_records(), options, RHO, tmp_path / "as torch comes")
    assert files_in(tmp_path / "chosen") == files_in(tmp_path / "as torch comes")
    assert options.load().score(texts) == scores


@pytest.mark.parametrize("values", [[5.7, np.nextafter(5.7, 6)], [1.0, 1e30], [float("nan")], [7.0] * 3])
def test_every_corpus_can_be_plotted(tmp_path: Path, values: list[float]) -> None:
    """Of two neighbouring numbers no bins can be made, which one record decided. 27th attack."""
    with pytest.raises(ValueError, match="Too many bins"):
        np.histogram([5.7, np.nextafter(5.7, 6)], bins=40)
    lines = [{"id": str(number), "log_perplexity": value, "rho": 0.5} for number, value in enumerate(values)]
    (tmp_path / SCORES).write_text("".join(json.dumps(line).replace("NaN", "null") + "\n" for line in lines))
    plot_scores(tmp_path, RHO)
    assert (tmp_path / "rho.png").stat().st_size > 1000


# stopped --------------------------------------------------------------------------------------------------------------


class Stopping:
    """Records whose second reading stops after some of them."""

    def __init__(self, records: list[Record], after: int) -> None:
        self.records, self.after, self.readings = records, after, 0

    def __iter__(self) -> Iterator[Record]:
        self.readings += 1
        for number, record in enumerate(self.records):
            if self.readings > 1 and number == self.after:
                raise KeyboardInterrupt
            yield record


@pytest.mark.slow
@pytest.mark.parametrize("after", [3, 9, 33, 59])
def test_a_stopped_scoring_goes_on_to_the_same_bytes(tmp_path: Path, options: ScorerOptions, after: int) -> None:
    records = some_records()
    score_corpus(records, options, RHO, tmp_path / "whole")
    with pytest.raises(KeyboardInterrupt):
        score_corpus(Stopping(records, after), options, RHO, tmp_path / "stopped", checkpoint_seconds=0)
    partial = tmp_path / "stopped.partial"
    assert not (tmp_path / "stopped").exists()
    assert partial.exists() == (after > 8), "before the first checkpoint nothing is left"
    if partial.exists():
        with (partial / SCORES).open("ab") as file:
            file.write(b'{"id": "torn')  # as a kill between two checkpoints leaves it
    score_corpus(records, options, RHO, tmp_path / "stopped")
    assert files_in(tmp_path / "stopped") == files_in(tmp_path / "whole")
    assert not partial.exists()


@pytest.mark.slow
def test_a_scoring_of_before_goes_on_to_the_same_bytes(tmp_path: Path, options: ScorerOptions) -> None:
    """Its checkpoint had the size of its one file by another name (`tacit.work.resumable`)."""
    records = some_records()
    score_corpus(records, options, RHO, tmp_path / "whole")
    with pytest.raises(KeyboardInterrupt):
        score_corpus(Stopping(records, 33), options, RHO, tmp_path / "stopped", checkpoint_seconds=0)
    path = tmp_path / "stopped.partial" / "checkpoint.json"
    state = json.loads(path.read_text())
    assert set(state) == {"options", "corpus", "records", "sizes"}
    state["size"] = state.pop("sizes")["scores"]
    path.write_text(json.dumps(state))
    score_corpus(records, options, RHO, tmp_path / "stopped")
    assert files_in(tmp_path / "stopped") == files_in(tmp_path / "whole")


class Killing:
    """Records whose second reading is killed after forty of them."""

    def __init__(self, records: list[Record]) -> None:
        self.records, self.readings = records, 0

    def __iter__(self) -> Iterator[Record]:
        self.readings += 1
        for number, record in enumerate(self.records):
            if self.readings == 2 and number == 40:
                os.kill(os.getpid(), signal.SIGKILL)
            yield record


def killed_scoring(folder: Path, out: Path) -> None:
    """In a process of its own."""
    scoring._CHUNK_RECORDS = 8
    score_corpus(Killing(some_records()), ScorerOptions(folder), RHO, out, checkpoint_seconds=0)


@pytest.mark.slow
def test_a_killed_scoring_goes_on_to_the_same_bytes(tmp_path: Path, options: ScorerOptions) -> None:
    records = some_records()
    done = called(killed_scoring, options.folder, tmp_path / "killed")
    assert done.returncode == -signal.SIGKILL, done.stderr
    assert (tmp_path / "killed.partial" / "checkpoint.json").exists()
    score_corpus(records, options, RHO, tmp_path / "killed")
    score_corpus(records, options, RHO, tmp_path / "whole")
    assert files_in(tmp_path / "killed") == files_in(tmp_path / "whole")


def test_it_goes_on_with_the_same_only(tmp_path: Path, options: ScorerOptions) -> None:
    records, out = some_records(), tmp_path / "scores"
    with pytest.raises(KeyboardInterrupt):
        score_corpus(Stopping(records, 20), options, RHO, out, checkpoint_seconds=0)
    with pytest.raises(UsageError, match=r"other options \(upper: 5.715 -> 6.0\)"):
        score_corpus(records, options, PrivacyProbability(RHO.lower, 6.0), out)
    with pytest.raises(UsageError, match="length: 32 -> 16"):
        score_corpus(records, ScorerOptions(options.folder, 16), RHO, out)
    with pytest.raises(DataError, match="the corpus is not the one") as caught:
        score_corpus([*records[1:], Record("d0", None, SENTINEL)], options, RHO, out)
    assert SENTINEL not in str(caught.value)
    score_corpus(records, options, RHO, out)
    with pytest.raises(DataError, match="the corpus is not the one"):
        score_corpus(records[1:], options, RHO, out)


def test_a_folder_with_something_else_is_left_alone(tmp_path: Path, options: ScorerOptions) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "notes.txt").write_text("mine")
    with pytest.raises(UsageError, match="no finished scoring"):
        score_corpus(some_records(), options, RHO, tmp_path / "mine")
    assert files_in(tmp_path / "mine") == {"notes.txt": b"mine"}
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]


def test_a_malformed_corpus_leaves_nothing(tmp_path: Path, options: ScorerOptions) -> None:
    class Broken:
        def __iter__(self) -> Iterator[Record]:
            yield from some_records(30)
            raise DataError("notes.jsonl, line 31: broken")

    with pytest.raises(DataError):
        score_corpus(Broken(), options, RHO, tmp_path / "deep" / "scores")
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(ValueError, match="read twice"):
        score_corpus(iter(some_records()), options, RHO, tmp_path / "scores")


def test_an_error_on_the_way_takes_the_folders_that_it_made(tmp_path: Path, options: ScorerOptions) -> None:
    with pytest.raises(KeyboardInterrupt):
        score_corpus(Stopping(some_records(), 2), options, RHO, tmp_path / "deep" / "scores")
    assert list(tmp_path.iterdir()) == []


# reading --------------------------------------------------------------------------------------------------------------


def test_reading_scores(tmp_path: Path) -> None:
    lines = ['{"id": "a", "log_perplexity": 2.25, "rho": 0.125}', '{"id": "a", "log_perplexity": 2.5, "rho": 0.25}']
    lines += ['{"id": "b", "log_perplexity": null, "rho": 1.0}', '{"id": "c", "log_perplexity": 2.0, "rho": 0.0}']
    (tmp_path / SCORES).write_text("\n".join(lines) + "\n")
    _, first, second, _ = read_scores(tmp_path)
    assert first == Score("a", 2.5, 0.25)
    assert (second.id, math.isnan(second.log_perplexity), second.rho) == ("b", True, 1.0)
    assert list(rho_in_order(tmp_path / SCORES, "abc")) == [0.25, 1.0, 0.0]
    assert list(rho_in_order(tmp_path, "ac")) == [0.25, 0.0]  # who is held out is scored too
    assert list(rho_in_order(tmp_path, [None, "a", None, "c", None])) == [1.0, 0.25, 1.0, 0.0, 1.0]


@pytest.mark.parametrize("ids", ["abcd", "ca", "aa"])
def test_an_id_that_is_not_where_it_should_be(tmp_path: Path, ids: str) -> None:
    lines = [f'{{"id": "{id_}", "log_perplexity": 2.0, "rho": 0.5}}' for id_ in "abc"]
    (tmp_path / SCORES).write_text("\n".join(lines) + "\n")
    with pytest.raises(DataError, match="not the scores of this corpus"):
        list(rho_in_order(tmp_path, ids))


@pytest.mark.parametrize(
    ("line", "part"),
    [
        (f'{{"id": "{SENTINEL}", "log_perplexity": 2.5, "rho": 1.5}}', r"outside \[0, 1\]"),
        (f'{{"id": "{SENTINEL}", "log_perplexity": 2.5, "rho": -0.1}}', r"outside \[0, 1\]"),
        (f'{{"id": "{SENTINEL}", "log_perplexity": 2.5, "rho": NaN}}', r"outside \[0, 1\]"),
        (f'{{"id": "{SENTINEL}", "log_perplexity": 2.5}}', "no score"),
        (f'{{"id": "{SENTINEL}", "log_perplexity": 2.5, "rho": "{SENTINEL}"}}', "no score"),
        (SENTINEL, "no score"),
    ],
)
def test_a_line_that_is_no_score(tmp_path: Path, line: str, part: str) -> None:
    (tmp_path / SCORES).write_text('{"id": "a", "log_perplexity": 2.5, "rho": 0.25}\n' + line + "\n")
    with pytest.raises(DataError, match=f"line 2: .*{part}") as caught:
        list(rho_in_order(tmp_path, "ab"))
    assert SENTINEL not in str(caught.value)
    assert "\n" not in str(caught.value)


def test_no_scores(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no scores"):
        list(rho_in_order(tmp_path, "ab"))


# constants from public text ------------------------------------------------------------------------------------------


def test_the_constants_are_quantiles(options: ScorerOptions) -> None:
    records = some_records(200)
    found, count = fit_public(records, options, (0.1, 0.7))
    scores = [score.log_perplexity for score in options.load().score([record.text for record in records])]
    finite = sorted(value for value in scores if math.isfinite(value))
    assert count == len(finite) < len(records)
    for value, quantile in ((found.lower, 0.1), (found.upper, 0.7)):
        place = quantile * (count - 1)
        below = finite[int(place)] + (place % 1) * (finite[int(place) + 1] - finite[int(place)])
        assert value == pytest.approx(below, rel=1e-5)
    rho = found.of(finite)
    assert np.mean(rho == 0) == pytest.approx(0.1, abs=0.02)
    assert np.mean(rho == 1) == pytest.approx(0.3, abs=0.02)


@pytest.mark.parametrize("quantiles", [(0.9, 0.1), (0.5, 0.5), (-0.1, 0.5), (0.1, 1.1), (math.nan, 0.5)])
def test_quantiles_that_make_no_constants(options: ScorerOptions, quantiles: tuple[float, float]) -> None:
    with pytest.raises(UsageError, match="quantiles"):
        fit_public(some_records(200), options, quantiles)


def test_too_little_public_text(options: ScorerOptions) -> None:
    with pytest.raises(DataError, match="fewer than 100"):
        fit_public(some_records(99), options)
    with pytest.raises(DataError, match="more varied"):
        fit_public([Record("d", None, "pain and fever")] * 120, options)


@pytest.mark.slow
def test_a_model_without_numbers_makes_everything_private(tmp_path: Path) -> None:
    """Numbers too large for it: nothing is scored, so everything is most private. (NaN weights are not loaded.)"""
    import torch
    from safetensors.torch import load_file, save_file

    folder = gpt2_folder(tmp_path / "scorer")
    weights = load_file(folder / "model.safetensors")
    weights["transformer.ln_f.weight"] = torch.full_like(weights["transformer.ln_f.weight"], 3e38)
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    edit_json(folder / "config.json")
    score_corpus(some_records(), ScorerOptions(folder), RHO, tmp_path / "scores")
    assert {(score.rho, math.isnan(score.log_perplexity)) for score in read_scores(tmp_path / "scores")} == {
        (1.0, True)
    }
    with pytest.raises(TacitError, match="only 0 records"):
        fit_public(some_records(200), ScorerOptions(folder))


def test_one_process_decides_which_rows_are_read_together(
    options: ScorerOptions, monkeypatch: pytest.MonkeyPatch
) -> None:
    """30th attack: each tried rows of its own, and which process has a text hangs on the texts before it."""
    decided = options.load().decided_rows()
    assert max(decided.values()) > 1
    worker = scoring._Worker(options, dict.fromkeys(decided, 1))
    worker(["a text of a few words"])
    monkeypatch.setattr(Scorer, "_independent", lambda self, rows, positions: pytest.fail("a worker has tried rows"))
    worker(["a text of a few words", "and one that is somewhat longer than the other one"] * 40)
