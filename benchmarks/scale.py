"""Time and memory of what a run does with a corpus, against the size of the corpus.

Run ``python benchmarks/scale.py --results FILE [--megabytes 10 50 200] [--only PART] [--page docs/scale.md] [--plot FILE]``. It
writes temporary corpora of made-up words, a short document a line, and of each measures, every one in a fresh process:

- store: read the records, group them into units, sort, fingerprint and write them (`tacit.corpus.unit_writing`);
- group: the same of users whose eight records lie in eight files;
- count: the words of a DP vocabulary, with the contribution bound, from there;
- tokenise: rows of token ids from there (`tacit.training.row_store`);
- draw: open those rows, draw a step's units and read them;
- screen: find secrets by the package's two policies and split the text, a record a data point; with one process and with two;
- exact copies: the same, and mask all copies of a data point but the first;
- near copies: look for texts that have four fifths of their shingles in common (`tacit.screening.near_duplicates`);
- run: the whole of ``tacit run``: text to report, one small model, few steps;
- driver store, driver rows: what the driver of a cluster does with text and rows that come to it, 2,000 units again and again;
- spark store, spark count, spark tokenise: the same on Spark with two tasks at once, the text in eight files. Each starts Java, reads
  and groups the text again; in a run they follow one another.

Near copies are measured up to 50 MB; scoring has `benchmarks/scoring.py`. FILE gets a line for each as it is done, and what is in it
is not measured again: stop it, and run the same command to go on. With ``--only text`` the page gets what was measured here, of
texts and on Spark, between marks of its own, for another machine than that of the rest.
Peaks are those of the process: resident memory as the system counts it, and the part that is no file's ("own"). With Spark they are
sums over all processes, in which pages that these share count more than once.
"""

from __future__ import annotations

import argparse
import functools
import itertools
import json
import math
import random
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tacit.spark.corpus import SparkCorpus
    from tacit.training.tokenising import Tokenising

WORDS = 20_000
LENGTH = 64
DRAWN = 256
BEGIN, END = "<!-- measured -->", "<!-- end of measured -->"
BEGIN_TEXT, END_TEXT = "<!-- measured of text -->", "<!-- end of measured of text -->"


@dataclass(frozen=True)
class Measured:
    """Of one operation on one size of text: seconds of the clock and of the processor, and MiB at the peak."""

    operation: str
    megabytes: float
    seconds: float
    cpu_seconds: float
    peak: float
    own_peak: float


# corpora ---------------------------------------------------------------------------------------------------------------


def write_text(path: Path, megabytes: float) -> int:
    """A line a document, of 20 to 60 words, the r-th of them with a share of about 1 / (r + 10); gives the lines."""
    rng = random.Random(0)
    letters = "abcdefghijklmnopqrstuvwxyz"
    words = ["".join(rng.choices(letters, k=rng.randint(2, 9))) for _ in range(WORDS)]
    cumulative = list(itertools.accumulate(1 / (rank + 10) for rank in range(WORDS)))
    size = lines = 0
    with path.open("w", encoding="utf-8") as file:
        while size < 1e6 * megabytes:
            line = " ".join(rng.choices(words, cum_weights=cumulative, k=rng.randint(20, 60))) + "\n"
            file.write(line)
            size, lines = size + len(line), lines + 1
    return lines


def write_pieces(folder: Path) -> None:
    """The same text in eight files."""
    (folder / "pieces").mkdir()
    with (folder / "text.txt").open(encoding="utf-8") as text:
        files = [(folder / "pieces" / f"{number}.txt").open("w", encoding="utf-8") for number in range(8)]
        for line, file in zip(text, itertools.cycle(files), strict=False):
            file.write(line)
        for file in files:
            file.close()


CONFIG = """
title: scale
run: {run}
privacy: {{unit: record, units: {units}, relation: add-or-remove, budget: {{epsilon: 8.0, delta: 1.0e-8}}}}
private: {{path: {text}}}
public: [{{path: {public}}}]
vocabulary: {{method: histogram, max_words: 60, size: 2000, epsilon_share: 0.3}}
model: {{kind: bert, layers: 1, width: 64, heads: 2, length: {length}}}
phases:
  - {{name: public, plan: plain, stream: public, steps: 5, batch_size: 64, learning_rate: 2.0e-3}}
  - {{name: private, plan: dp, stream: private, steps: 8, expected_batch: {drawn}, clip_norm: 0.5, learning_rate: 1.0e-3}}
evaluation: {{held_out: 0.001}}
"""


# operations, each in a process of its own --------------------------------------------------------------------------------


def store(folder: Path) -> None:
    from tacit.corpus.readers import read_records
    from tacit.corpus.source import Source
    from tacit.corpus.unit_writing import Part, write_units
    from tacit.corpus.units import UnitKind
    from tacit.randomness import KeyedRandomness

    (folder / "text").mkdir()
    parts = [Part(read_records(Source(folder / "text.txt")), UnitKind("record"))]
    write_units(folder / "text", parts, lambda unit_id: False, KeyedRandomness(bytes(32)))


def count(folder: Path) -> None:
    from tacit.corpus.unit_store import open_units
    from tacit.randomness import KeyedRandomness
    from tacit.vocabulary.count import ContributionBound, sorted_word_counts
    from tacit.vocabulary.tally import Spill, spill_folder
    from tacit.vocabulary.tokenizer import TokenizerOptions

    units = ((unit.unit_id, unit.texts) for unit in open_units(folder / "text").training)
    with spill_folder(folder / "spill") as place:
        options = TokenizerOptions()
        bound = ContributionBound(60, KeyedRandomness(bytes(32)))
        sorted_word_counts(units, bound, options, Spill(place, 512), ids_differ=True)


def tokenise(folder: Path) -> None:
    from tacit.corpus.unit_store import open_units
    from tacit.training.row_store import write_rows

    units = open_units(folder / "text").training
    how = tokenising(folder)
    (folder / "rows").mkdir()
    at_once = 2000
    parts = (units[start : start + at_once] for start in range(0, len(units), at_once))
    write_rows(folder / "rows", (how.rows(part, [False] * len(part)) for part in parts))


def tokenising(folder: Path) -> Tokenising:
    """How rows are made: with a vocabulary of the first units of the store."""
    from tacit.corpus.unit_store import open_units
    from tacit.randomness import KeyedRandomness
    from tacit.training.tokenising import Tokenising
    from tacit.vocabulary.special import OWN_NAMES
    from tacit.vocabulary.tokenizer import TokenizerOptions, build_tokenizer
    from tacit.vocabulary.wordpiece import train_wordpiece

    options = TokenizerOptions()
    words = {word: 1 for unit in open_units(folder / "text").training[:2000] for word in unit.texts[0].split()}
    tokenizer = build_tokenizer(train_wordpiece(words, 2000, options.alphabet), options)
    return Tokenising(tokenizer.to_str(), OWN_NAMES, LENGTH, KeyedRandomness(bytes(32)), ("", "a benchmark"), False)


def draw(folder: Path) -> None:
    from tacit.engine.sampler import poisson_sample
    from tacit.randomness import KeyedRandomness
    from tacit.training.row_store import open_rows

    stream = open_rows(folder / "rows")
    for step in range(10):
        for unit in poisson_sample(stream.units, DRAWN / stream.units, KeyedRandomness(bytes(32)).generator(step)):
            stream.ids_ST[stream.rows_of(int(unit))].sum()


def write_users(folder: Path) -> None:
    """The same text in eight files of JSON lines, in each of which every user has one record."""
    (folder / "users").mkdir()
    with (folder / "text.txt").open(encoding="utf-8") as text:
        files = [(folder / "users" / f"{number}.jsonl").open("w", encoding="utf-8") for number in range(8)]
        for number, (line, file) in enumerate(zip(text, itertools.cycle(files), strict=False)):
            file.write(json.dumps({"user": f"u{number // 8}", "text": line.strip()}) + "\n")
        for file in files:
            file.close()


def group(folder: Path) -> None:
    from tacit.corpus.readers import read_records
    from tacit.corpus.source import Source
    from tacit.corpus.unit_writing import Part, write_units
    from tacit.corpus.units import UnitKind
    from tacit.randomness import KeyedRandomness

    (folder / "grouped").mkdir()
    parts = [Part(read_records(Source(folder / "users", user_field="user")), UnitKind("user"))]
    write_units(folder / "grouped", parts, lambda unit_id: False, KeyedRandomness(bytes(32)))


def screen(folder: Path, workers: int = 1, copies: bool = False) -> None:
    from tacit.corpus.source import Source
    from tacit.pipeline.records import Corpus
    from tacit.randomness import KeyedRandomness
    from tacit.screening.corpus import ScreenPlan, screen_corpus

    plan = ScreenPlan(workers=workers, deduplicate="exact" if copies else "none")
    with tempfile.TemporaryDirectory(dir=folder) as place:
        corpus, streams = Corpus(Source(folder / "text.txt")), KeyedRandomness(bytes(32))
        screen_corpus(corpus, plan, Path(place) / "screened", streams, needed=())


def near_copies(folder: Path) -> None:
    from tacit.corpus.readers import read_records
    from tacit.corpus.source import Source
    from tacit.randomness import KeyedRandomness
    from tacit.screening.near_duplicates import NearDuplicates, NearOptions

    found = NearDuplicates(NearOptions(), KeyedRandomness(bytes(32)))
    for record in read_records(Source(folder / "text.txt")):
        found.mark(record.text)


def driver_store(folder: Path) -> None:
    from tacit.corpus.unit_store import open_units
    from tacit.corpus.unit_writing import UnitBatch, write_ordered_units
    from tacit.randomness import KeyedRandomness

    batch = UnitBatch.of([(unit, False) for unit in open_units(folder / "text").training[:2000]])
    times = (folder / "text.txt").stat().st_size // len(batch.texts)
    (folder / "driver").mkdir()
    write_ordered_units(folder / "driver", itertools.repeat(batch, times), KeyedRandomness(bytes(32)))


def driver_rows(folder: Path) -> None:
    from tacit.corpus.unit_store import open_units
    from tacit.training.row_store import write_rows

    units = open_units(folder / "text").training[:2000]
    part = tokenising(folder).rows(units, [False] * len(units))
    times = (folder / "text.txt").stat().st_size // sum(len(text.encode()) for unit in units for text in unit.texts)
    (folder / "driver rows").mkdir()
    write_rows(folder / "driver rows", itertools.repeat(part, times))


def on_spark(folder: Path) -> SparkCorpus:
    from tacit.corpus.source import Source
    from tacit.corpus.units import UnitKind
    from tacit.randomness import KeyedRandomness
    from tacit.spark.corpus import CorpusPart, SparkCorpus
    from tacit.spark.runner import Runner
    from tacit.spark.session import open_session

    runner = Runner(open_session(folder / "spark", workers=2))
    return SparkCorpus(
        lambda: runner, [CorpusPart(Source(folder / "pieces"), UnitKind("record"))], 0.0, KeyedRandomness(bytes(32))
    )


def spark_store(folder: Path) -> None:
    (folder / "on spark").mkdir()
    on_spark(folder).write(folder / "on spark")


def spark_count(folder: Path) -> None:
    from tacit.randomness import KeyedRandomness
    from tacit.vocabulary.count import ContributionBound
    from tacit.vocabulary.tally import Spill, spill_folder
    from tacit.vocabulary.tokenizer import TokenizerOptions

    corpus, bound = on_spark(folder), ContributionBound(60, KeyedRandomness(bytes(32)))
    corpus.bind(folder / "on spark")
    with spill_folder(folder / "spill") as place:
        corpus.counts(bound, TokenizerOptions(), [], Spill(place, 512))


def spark_tokenise(folder: Path) -> None:
    from tacit.training.row_store import write_rows

    corpus = on_spark(folder)
    corpus.bind(folder / "on spark")
    (folder / "rows on spark").mkdir()
    write_rows(folder / "rows on spark", corpus.rows(tokenising(folder), held_out=False))


HERE: dict[str, Callable[[Path], None]] = {
    "store": store,
    "group": group,
    "count": count,
    "tokenise": tokenise,
    "draw": draw,
}
OF_TEXT: dict[str, Callable[[Path], None]] = {
    "screen": screen,
    "screen, two processes": functools.partial(screen, workers=2),
    "exact copies": functools.partial(screen, copies=True),
    "near copies": near_copies,
}
LARGEST = {"near copies": 50.0}
"""MB of text: they hold all texts."""
DRIVER: dict[str, Callable[[Path], None]] = {"driver store": driver_store, "driver rows": driver_rows}
ON_SPARK: dict[str, Callable[[Path], None]] = {
    "spark store": spark_store,
    "spark count": spark_count,
    "spark tokenise": spark_tokenise,
}
OPERATIONS = HERE | OF_TEXT | DRIVER | ON_SPARK
PARTS = {"here": HERE, "text": OF_TEXT, "driver": DRIVER, "spark": ON_SPARK, "run": {"run": None}}


IN_TWO = ("screen, two processes",)
NEEDED = {
    **dict.fromkeys(("count", "tokenise", *DRIVER), ("store",)),
    "draw": ("store", "tokenise"),
    "spark count": ("spark store",),
    "spark tokenise": ("store", "spark store"),
}
"""What must have been done in the same folder before."""


# measuring ---------------------------------------------------------------------------------------------------------------


def watched(command: Sequence[str], together: bool) -> tuple[float, float, float, float]:
    """Run a command: seconds of the clock and of the processor, peak resident and own memory in MiB (Linux).

    Args:
        together: memory is that of the process and all that it has started, too.
    """
    import resource

    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    start = time.monotonic()
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    said: list[bytes] = []
    reader = threading.Thread(target=lambda: said.append(process.stdout.read() if process.stdout else b""))
    reader.start()
    peak = own = 0
    while process.poll() is None:
        found = [_memory(each) for each in (_family(process.pid) if together else [process.pid])]
        peak = max(peak, sum(resident for resident, _ in found))
        own = max(own, sum(anonymous for _, anonymous in found))
        time.sleep(0.2 if together else 0.02)
    reader.join()
    if process.returncode:
        raise SystemExit(f"{' '.join(command)} ended with {process.returncode}:\n{b''.join(said).decode()}")
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return time.monotonic() - start, cpu, peak / 1024, own / 1024


def _family(process: int) -> list[int]:
    """A process and those that it has started, and so on."""
    children: dict[int, list[int]] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            pid, parent = path.parent.name, path.read_text().rpartition(")")[2].split()[1]
        except OSError:
            continue
        children.setdefault(int(parent), []).append(int(pid))
    found = [process]
    for each in found:
        found += children.get(each, [])
    return found


def _memory(process: int) -> tuple[int, int]:
    """Resident memory now, and the part that is no file's, in KiB."""
    values = {name: value for name, _, value in (line.partition(":") for line in _status(process))}
    return tuple(int(values[name].split()[0]) if name in values else 0 for name in ("VmRSS", "RssAnon"))


def _status(process: int) -> list[str]:
    try:
        return Path(f"/proc/{process}/status").read_text().splitlines()
    except OSError:  # it has just ended
        return []


def measure(megabytes: float, only: str | None, results: Path, done: list[Measured]) -> None:
    """The operations on one size that are not in the results yet; with ``only`` no others."""
    wanted = [
        name
        for name in (PARTS[only] if only else [*OPERATIONS, "run"])
        if megabytes <= LARGEST.get(name, math.inf)
        and not any((m.operation, m.megabytes) == (name, megabytes) for m in done)
    ]
    if not wanted:
        return
    with tempfile.TemporaryDirectory(dir=results.parent) as place:
        folder = Path(place)
        lines = write_text(folder / "text.txt", megabytes)
        write_text(folder / "public.txt", 1.0)
        if any(name in ON_SPARK for name in wanted):
            write_pieces(folder)
        if "group" in wanted:
            write_users(folder)
        values = {"run": folder / "run", "units": lines, "text": folder / "text.txt", "public": folder / "public.txt"}
        (folder / "run.yaml").write_text(CONFIG.format(**values, length=LENGTH, drawn=DRAWN))
        for name in [*OPERATIONS, "run"]:
            own = [sys.executable, __file__, "--operation", name, "--folder", place]
            command = [sys.executable, "-m", "tacit", "run", str(folder / "run.yaml")] if name == "run" else own
            if name not in wanted and not any(name in NEEDED.get(other, ()) for other in wanted):
                continue
            found = Measured(name, megabytes, *watched(command, name in ON_SPARK or name in IN_TWO))
            if name in wanted:
                done.append(found)
                with results.open("a", encoding="utf-8") as file:
                    file.write(json.dumps(asdict(found)) + "\n")
                print(_line(found), flush=True)


def _line(m: Measured) -> str:
    return (
        f"{m.operation:14} {m.megabytes:6.0f} MB: {m.seconds:7.1f} s ({m.cpu_seconds:.1f} s of processor), "
        f"peak {m.peak:.0f} MiB, own {m.own_peak:.0f} MiB"
    )


# the page ----------------------------------------------------------------------------------------------------------------


def tables(measured: Sequence[Measured]) -> str:
    """Markdown: a row a size and operation, how memory grows, and what follows for a terabyte."""
    rows = table(measured, [*OPERATIONS, "run"])
    runs = {m.megabytes: m for m in measured if m.operation == "run"}
    sizes = sorted(runs)
    first, last = runs[sizes[0]], runs[sizes[-1]]
    grown = f"From {sizes[0]:,.0f} MB to {sizes[-1]:,.0f} MB of text the peak of `tacit run` grows by a factor of "
    rows += ["", f"{grown}{last.peak / first.peak:.2f}, its own memory by one of {last.own_peak / first.own_peak:.2f}."]
    rows += ["", *_terabyte(runs, sizes)]
    if any(m.operation in ON_SPARK for m in measured):
        rows += ["", *worked_plan(measured)]
    return "\n".join(rows)


def table(measured: Sequence[Measured], operations: Iterable[str]) -> list[str]:
    """Markdown: a row a size and operation."""
    rows = ["| operation | MB of text | seconds | MB a second | peak MiB | own MiB |", "|---|--:|--:|--:|--:|--:|"]
    for name in operations:
        for m in sorted((m for m in measured if m.operation == name), key=lambda m: m.megabytes):
            speed = "" if name == "draw" else f"{m.megabytes / m.seconds:.2f}"
            rows.append(
                f"| {name} | {m.megabytes:,.0f} | {m.seconds:,.1f} | {speed} | {m.peak:,.0f} | {m.own_peak:,.0f} |"
            )
    return rows


def _terabyte(runs: dict[float, Measured], sizes: Sequence[float]) -> list[str]:
    small, large = runs[sizes[0]], runs[sizes[-1]]
    a_megabyte = (large.seconds - small.seconds) / (large.megabytes - small.megabytes)
    days = a_megabyte * 1e6 / 86400
    return [
        f"Each further megabyte takes `tacit run` {a_megabyte:.3f} s before and beside its steps, so a terabyte would take "
        f"{days:,.1f} days on this machine: an extrapolation by a factor of {1e6 / large.megabytes:,.0f}, not a measurement."
    ]


NODES, CORES, GBIT_A_SECOND, DOLLARS_A_CORE_HOUR = 20, 16, 10.0, 0.05
TERABYTE = 1e6  # in MB


def worked_plan(measured: Sequence[Measured]) -> list[str]:
    """Markdown: a terabyte on a cluster, from the rates of the largest size that was measured."""
    rate = {m.operation: m.megabytes / m.seconds for m in sorted(measured, key=lambda m: m.megabytes)}
    document = _mean_document()
    cores, network = NODES * CORES, GBIT_A_SECOND / 8 * 1e3  # MB a second into one machine
    rows_mb = TERABYTE / document * LENGTH * 4
    stages = [
        ("shuffle of the text by unit", "network", TERABYTE / NODES / network),
        ("units, by all cores", "executors", TERABYTE / rate["store"] / cores),
        ("words, by all cores", "executors", TERABYTE / rate["count"] / cores),
        ("rows, by all cores", "executors", TERABYTE / rate["tokenise"] / cores),
        ("text and fingerprint into the driver", "network", 2 * TERABYTE / network),
        ("store of the text", "driver", TERABYTE / rate["driver store"]),
        ("rows into the driver", "network", rows_mb / network),
        ("store of the rows", "driver", TERABYTE / rate["driver rows"]),
    ]
    hours = sum(seconds for _, _, seconds in stages) / 3600
    slowest = max(stages, key=lambda stage: stage[2])
    return [
        f"A terabyte on {NODES} machines of {CORES} cores, {GBIT_A_SECOND:g} Gbit/s and {DOLLARS_A_CORE_HOUR} dollars a core-hour, "
        f"calculated from the rates of one core above, documents of {document:.0f} bytes and rows of {LENGTH} positions:",
        "",
        "| what | bound by | hours |",
        "|---|---|--:|",
        *(f"| {what} | {bound} | {seconds / 3600:,.2f} |" for what, bound, seconds in stages),
        "",
        f"Together {hours:,.1f} hours and {hours * cores * DOLLARS_A_CORE_HOUR:,.0f} dollars, if each waits for the one before. What "
        f"breaks first is the driver: its disk holds 1 TB of text and {rows_mb / TERABYTE:.1f} TB of rows, and the largest part is "
        f"{slowest[0]} ({slowest[1]}). A core is taken to be as fast as here. Nothing of this was run.",
    ]


def _mean_document() -> float:
    with tempfile.TemporaryDirectory() as folder:
        return 1e6 / write_text(Path(folder) / "text.txt", 1.0)


def write_page(page: Path, marks: tuple[str, str], said: str) -> None:
    """Put it between the marks of the page."""
    begin, end = marks
    before, _, rest = page.read_text(encoding="utf-8").partition(begin)
    _, _, after = rest.partition(end)
    page.write_text(f"{before}{begin}\n\n{said}\n\n{end}{after}", encoding="utf-8")


def write_plot(path: Path, measured: Sequence[Measured]) -> None:
    """Seconds and peaks against megabytes."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.6), layout="constrained")
    for name in (*OPERATIONS, "run"):
        own = sorted((m for m in measured if m.operation == name), key=lambda m: m.megabytes)
        left.plot([m.megabytes for m in own], [m.seconds for m in own], marker="o", label=name)
        right.plot([m.megabytes for m in own], [m.peak for m in own], marker="o", label=name)
    left.set(xscale="log", yscale="log", xlabel="MB of text", ylabel="seconds")
    right.set(xscale="log", xlabel="MB of text", ylabel="peak resident memory, MiB")
    right.set_ylim(bottom=0)
    left.legend()
    figure.savefig(path, dpi=120)


def main() -> None:
    parser = argparse.ArgumentParser(description="Time and memory of a corpus, by its size.")
    parser.add_argument("--results", type=Path)
    parser.add_argument("--megabytes", type=float, nargs="+", default=[10, 50, 200])
    parser.add_argument("--only", choices=list(PARTS), help="this part alone")
    parser.add_argument("--page", type=Path)
    parser.add_argument("--plot", type=Path)
    parser.add_argument("--operation", choices=list(OPERATIONS), help="for the processes that it starts")
    parser.add_argument("--folder", type=Path, help="likewise")
    arguments = parser.parse_args()
    if arguments.operation:
        OPERATIONS[arguments.operation](arguments.folder)
        return
    if arguments.results is None:
        parser.error("give --results FILE, where measurements are kept")
    results = arguments.results.resolve()
    lines = results.read_text(encoding="utf-8").splitlines() if results.exists() else []
    done = [Measured(**json.loads(line)) for line in lines]
    for megabytes in arguments.megabytes:
        measure(megabytes, arguments.only, results, done)
    if arguments.page and arguments.only == "text":
        write_page(arguments.page, (BEGIN_TEXT, END_TEXT), "\n".join(table(done, [*HERE, *OF_TEXT, *ON_SPARK])))
    elif arguments.page:
        write_page(arguments.page, (BEGIN, END), tables(done))
    if arguments.plot:
        write_plot(arguments.plot, done)


if __name__ == "__main__":
    main()
