"""Megabytes of text a second that the core detector and both policies read, on one core.

Run ``python benchmarks/screening.py DATA [--megabytes 4] [--json]``, where DATA is the folder of real corpora.
"""

from __future__ import annotations

import argparse
import gzip
import json
import time
from collections.abc import Callable, Iterator, Sequence
from itertools import chain
from pathlib import Path

from tacit.screening import CoreDetector, Detector, Policy, package_policy

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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path, help="the folder of real corpora")
    parser.add_argument("--megabytes", type=float, default=4.0, help="text of each corpus")
    parser.add_argument("--json", action="store_true", help="print one JSON object a line")
    arguments = parser.parse_args()
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
