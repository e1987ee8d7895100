"""Megabytes of text a second that the core detector and both policies read on one core; or what screening a corpus takes.

Run ``python benchmarks/screening.py DATA [--megabytes 4] [--json]``, where DATA is the folder of real corpora; or
``python benchmarks/screening.py DATA --corpus MB [--data-point record] [--workers 1 2] [--json]``, which writes a temporary
corpus of so many megabytes (real dialogues over and over, every digit changed) and screens it with so many processes:
megabytes a second of wall-clock time, and the most memory that the first process and that any worker ever held.

``python benchmarks/screening.py DATA --streams [--json]`` says what becomes of the training dialogues of three corpora: which
share of the data points is private, ``<MASK>`` and nothing else, or a copy, by data point and by what is done with copies.
"""

from __future__ import annotations

import argparse
import gzip
import json
import multiprocessing
import random
import re
import resource
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass
from itertools import chain, count, product
from pathlib import Path
from typing import get_args

from tacit.corpus.source import Source
from tacit.corpus.turns import Turns
from tacit.pipeline.records import Corpus
from tacit.randomness import KeyedRandomness
from tacit.screening import CoreDetector, Detector, Policy, package_policy
from tacit.screening.corpus import ScreenPlan, screen_corpus
from tacit.screening.split import DataPoint, Deduplicate

BATCH = 2000


def customersim(data: Path) -> Iterator[str]:
    """Whole dialogues."""
    with gzip.open(data / "customersim" / "customersim.train.jsonl.gz", "rt", encoding="utf-8") as file:
        yield from (json.loads(line)["text"] for line in file)


def sgd(data: Path) -> Iterator[str]:
    """Single turns, about 60 bytes each."""
    with gzip.open(data / "sgd" / "sgd.train.jsonl.gz", "rt", encoding="utf-8") as file:
        yield from chain.from_iterable((turn[1] for turn in json.loads(line)["turns"]) for line in file)


CORPORA: dict[str, Callable[[Path], Iterator[str]]] = {"customersim": customersim, "sgd": sgd}


def first_megabytes(texts: Iterator[str], megabytes: float) -> list[str]:
    """Texts from the beginning, up to this size in UTF-8."""
    taken: list[str] = []
    size = 0.0
    for text in texts:
        taken.append(text)
        size += len(text.encode()) / 1e6
        if size >= megabytes:
            break
    return taken


def megabytes_per_second(reader: Detector | Policy, texts: Sequence[str], passes: int = 3) -> float:
    """Speed over all texts in batches, in CPU time: the best of a few passes, after one that warms up."""
    reader.spans_of(texts[:BATCH])
    size = sum(len(text.encode()) for text in texts) / 1e6
    return size / min(seconds(reader, texts) for _ in range(passes))


def seconds(reader: Detector | Policy, texts: Sequence[str]) -> float:
    """CPU time of one pass."""
    start = time.process_time()
    for first in range(0, len(texts), BATCH):
        reader.spans_of(texts[first : first + BATCH])
    return time.process_time() - start


# A whole corpus -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Screened:
    """What screening a corpus took: seconds of the clock and of all processes, peak memory in MB of the first process and of
    its largest worker. ``remembered``: data points whose digest is kept, since they are no copies."""

    data_point: str
    workers: int
    megabytes: float
    seconds: float
    cpu_seconds: float
    megabytes_per_second: float
    data_points: int
    public: int
    remembered: int
    first_process_memory: float
    worker_memory: float


def sgd_dialogues(data: Path) -> Iterator[str]:
    """Whole dialogues, a turn a line."""
    with gzip.open(data / "sgd" / "sgd.train.jsonl.gz", "rt", encoding="utf-8") as file:
        yield from ("\n".join(turn[1] for turn in json.loads(line)["turns"]) for line in file)


def write_corpus(path: Path, data: Path, megabytes: float) -> None:
    """Both corpora in turn, again and again, every digit another one each time, up to this size of text."""
    size = 0
    with path.open("w", encoding="utf-8") as file:
        for turn in count():
            digits = random.Random(turn)
            for number, text in enumerate(chain(customersim(data), sgd_dialogues(data))):
                text = re.sub("[0-9]", lambda _, draw=digits: str(draw.randrange(10)), text)
                file.write(json.dumps({"id": f"{turn}-{number}", "text": text}) + "\n")
                size += len(text.encode())
                if size >= 1e6 * megabytes:
                    return


def screened(path: Path, workers: int, data_point: DataPoint) -> Screened:
    """Screen a corpus in this process, which has done nothing before."""
    plan = ScreenPlan(data_point=data_point, deduplicate="exact", workers=workers)
    corpus = Corpus(Source(path, id_field="id"))
    with tempfile.TemporaryDirectory() as folder:
        receipt = screen_corpus(corpus, plan, Path(folder) / "screened", KeyedRandomness(bytes(32)), needed=[])
    unit = 1e6 if sys.platform == "darwin" else 1e6 / 1024
    usage = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    own, largest = (used.ru_maxrss / unit for used in usage)
    cpu = sum(used.ru_utime + used.ru_stime for used in usage)
    counts = receipt.counts
    return Screened(
        data_point, workers, counts.bytes / 1e6, receipt.seconds, cpu, receipt.megabytes_per_second, counts.data_points,
        counts.public, counts.data_points - counts.duplicates, own, largest if workers > 1 else 0.0,
    )  # fmt: skip


def corpus_benchmark(arguments: argparse.Namespace) -> None:
    """Screen one corpus with each number of workers, each in a fresh process."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "corpus.jsonl"
        write_corpus(path, arguments.data, arguments.corpus)
        for workers in arguments.workers:
            with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as fresh:
                found = fresh.submit(screened, path, workers, arguments.data_point).result()
            if arguments.json:
                print(json.dumps({"benchmark": "screening-corpus", **asdict(found)}), flush=True)
                continue
            print(
                f"{found.megabytes:.0f} MB, {found.data_point}, {workers} workers: {found.seconds:.0f} s "
                f"({found.cpu_seconds:.0f} s of all processes), {found.megabytes_per_second:.2f} MB/s; "
                f"memory {found.first_process_memory:.0f} MB, largest worker {found.worker_memory:.0f} MB; "
                f"{found.data_points} data points, {found.public} public, {found.remembered} remembered",
                flush=True,
            )


# How much becomes private, masked, a copy -----------------------------------------------------------------------------


@dataclass(frozen=True)
class Shares:
    """What screening makes of a corpus: shares of its data points that are private, that are ``<MASK>`` and nothing else, and
    that are copies of an earlier one."""

    corpus: str
    data_point: DataPoint
    deduplicate: Deduplicate
    data_points: int
    private: float
    only_mask: float
    duplicates: float


def dialogues(data: Path) -> dict[str, Source]:
    """The training dialogues of three corpora, as a configuration reads them; of MultiWOZ shard 1 and ConvLab-2's validation part."""
    turns = Turns()
    return {
        "CustomerSim": Source(data / "customersim" / "customersim.train.jsonl.gz", id_field="id"),
        "SGD": Source(data / "sgd" / "sgd.train.jsonl.gz", text_field="turns", id_field="id", turns=turns),
        "MultiWOZ": Source(
            data / "multiwoz" / "multiwoz*[1l].*jsonl.gz", text_field="turns", id_field="id", turns=turns
        ),
    }


def shares(name: str, source: Source, workers: int) -> Iterator[Shares]:
    """Screen a corpus in every way."""
    for data_point, deduplicate in product(get_args(DataPoint), get_args(Deduplicate)):
        plan = ScreenPlan(data_point=data_point, deduplicate=deduplicate, workers=workers)
        with tempfile.TemporaryDirectory() as folder:
            receipt = screen_corpus(
                Corpus(source), plan, Path(folder) / "screened", KeyedRandomness(bytes(32)), needed=[]
            )
        counts = receipt.counts
        parts = (part / counts.data_points for part in (counts.private, counts.only_mask, counts.duplicates))
        yield Shares(name, data_point, deduplicate, counts.data_points, *parts)


def streams_benchmark(arguments: argparse.Namespace) -> None:
    """A row for each corpus, data point and way to treat copies."""
    if not arguments.json:
        print("| corpus | data point | deduplicate | data points | private | only `<MASK>` | copies |")
        print("|---|---|---|---|---|---|---|")
    for name, source in dialogues(arguments.data).items():
        for row in shares(name, source, max(arguments.workers)):
            if arguments.json:
                print(json.dumps({"benchmark": "screening-streams", **asdict(row)}), flush=True)
                continue
            percent = " | ".join(f"{100 * share:.1f} %" for share in (row.private, row.only_mask, row.duplicates))
            print(f"| {name} | {row.data_point} | {row.deduplicate} | {row.data_points:,} | {percent} |", flush=True)


# ----------------------------------------------------------------------------------------------------------------------


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path, help="the folder of real corpora")
    parser.add_argument("--megabytes", type=float, default=4.0, help="text of each corpus")
    parser.add_argument("--corpus", type=float, metavar="MB", help="screen a temporary corpus of this size instead")
    parser.add_argument("--streams", action="store_true", help="say what becomes of three corpora instead")
    parser.add_argument("--data-point", choices=["record", "line"], default="record", help="of the corpus")
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 2], help="processes that screen the corpus")
    parser.add_argument("--json", action="store_true", help="print one JSON object a line")
    arguments = parser.parse_args()
    if arguments.corpus is not None:
        corpus_benchmark(arguments)
        return
    if arguments.streams:
        streams_benchmark(arguments)
        return
    readers = {
        "core": CoreDetector(),
        "balanced": package_policy("balanced"),
        "conservative": package_policy("conservative"),
    }
    for corpus, read in CORPORA.items():
        texts = first_megabytes(read(arguments.data), arguments.megabytes)
        for name, reader in readers.items():
            speed = megabytes_per_second(reader, texts)
            if arguments.json:
                print(
                    json.dumps(
                        {"benchmark": "screening", "corpus": corpus, "reader": name, "megabytes_per_second": speed}
                    )
                )
            else:
                print(f"{corpus:12} {name:13} {speed:5.1f} MB/s")


if __name__ == "__main__":
    main()
