"""Records a second that `tacit score` scores with a laptop's GPT-2 (2 layers, width 128) in windows of 64 tokens.

Run ``python benchmarks/scoring.py DATA [--records 20000] [--vocabulary 8192 2000] [--workers 1 2] [--json]``, where DATA is the
folder of real corpora. The tokenizer is a WordPiece of WikiText-2's words, the weights are random (they do not change the speed).
Two corpora are scored, over and over up to this many records: clinical notes cut into records of exactly 64 tokens, and the turns of
dialogues as they are. What is told is the time of the clock from the first records on, the time with the start of the processes,
and for one worker the processor's time from the first records on, which other work on the machine changes less.
"""

from __future__ import annotations

import argparse
import gzip
import itertools
import json
import logging
import os
import tempfile
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from tokenizers import Tokenizer
from transformers import GPT2Config, GPT2LMHeadModel

from tacit.corpus.records import Record
from tacit.scoring.rho import PrivacyProbability
from tacit.scoring.scorer import ScorerOptions
from tacit.scoring.scoring import score_corpus
from tacit.vocabulary.tokenizer import TokenizerOptions, build_tokenizer, save_tokenizer
from tacit.vocabulary.wordpiece import train_wordpiece

LENGTH = 64


@dataclass(frozen=True)
class Scored:
    """Records a second of the clock: with the start of the processes (``whole``), and from the first records on (``steady``); and, of
    one worker, records a second of the processor from the first records on (``a_core``)."""

    corpus: str
    vocabulary: int
    workers: int
    records: int
    tokens_a_record: float
    whole: float
    steady: float
    a_core: float | None


def wikitext(data: Path) -> list[str]:
    """Lines with text."""
    with gzip.open(data / "wikitext-2" / "wikitext-2-raw.test.txt.gz", "rt", encoding="utf-8") as file:
        return [line for line in file if line.strip()]


def lines_of(data: Path, name: str) -> Iterator[str]:
    """Lines of the texts of a corpus."""
    with gzip.open(data / name, "rt", encoding="utf-8") as file:
        for line in file:
            yield from filter(str.strip, json.loads(line)["text"].splitlines())


def scorer_in(folder: Path, data: Path, vocabulary: int) -> Tokenizer:
    """Write a GPT-2 with random weights and its tokenizer."""
    options = TokenizerOptions()
    counts: dict[str, int] = {}
    for line in wikitext(data):
        for word in set(line.lower().split()):
            if all(one in options.alphabet for one in word):
                counts[word] = counts.get(word, 0) + 1
    tokenizer = build_tokenizer(train_wordpiece(counts, vocabulary, options.alphabet), options)
    torch.manual_seed(1)
    config = GPT2Config(
        vocab_size=tokenizer.get_vocab_size(),
        n_positions=LENGTH,
        n_embd=128,
        n_layer=2,
        n_head=2,
        bos_token_id=2,
        eos_token_id=3,
    )
    GPT2LMHeadModel(config).save_pretrained(folder)
    save_tokenizer(tokenizer, folder, LENGTH)
    return tokenizer


def full_records(lines: Iterator[str], tokenizer: Tokenizer) -> Iterator[str]:
    """Pieces of text of exactly 64 tokens, as the tokenizer counts them."""
    words: list[str] = []
    size = 0
    for line in lines:
        for word in line.split():
            new = len(tokenizer.encode(word, add_special_tokens=False).ids)
            if size + new > LENGTH:
                if size == LENGTH:
                    yield " ".join(words)
                words, size = [], 0
            words.append(word)
            size += new


def measured(name: str, texts: list[str], tokenizer: Tokenizer, folder: Path, count: int, workers: int) -> Scored:
    """Score so many records into a temporary folder."""
    sizes = [len(one.ids) for one in tokenizer.encode_batch_fast(texts, add_special_tokens=False)]
    records = [
        Record(str(number), None, text) for number, text in zip(range(count), itertools.cycle(texts), strict=False)
    ]
    total = sum(size for _, size in zip(range(count), itertools.cycle(sizes), strict=False))
    marks: list[tuple[float, float, int]] = []
    with tempfile.TemporaryDirectory() as out:
        start = time.perf_counter()
        score_corpus(
            records,
            ScorerOptions(folder),
            PrivacyProbability(3.0, 8.0),
            Path(out) / "scores",
            lambda done, size: marks.append((time.perf_counter(), time.process_time(), done)),
            workers=workers,
        )
        seconds = time.perf_counter() - start
    (first, first_cpu, before), (last, last_cpu, done) = marks[0], marks[-1]
    rest = count * (done - before) / done
    a_core = rest / (last_cpu - first_cpu) if workers == 1 else None
    steady = rest / (last - first)
    return Scored(name, tokenizer.get_vocab_size(), workers, count, total / count, count / seconds, steady, a_core)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path, help="the folder of real corpora")
    parser.add_argument("--records", type=int, default=20_000)
    parser.add_argument("--vocabulary", type=int, nargs="+", default=[8192, 2000], help="pieces")
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--json", action="store_true", help="print one JSON object a line")
    arguments = parser.parse_args()
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    logging.getLogger("transformers").setLevel(logging.ERROR)
    for vocabulary in arguments.vocabulary:
        with tempfile.TemporaryDirectory() as place:
            folder = Path(place)
            tokenizer = scorer_in(folder, arguments.data, vocabulary)
            notes = lines_of(arguments.data, "mtsamples/mtsamples.jsonl.gz")
            dialogues = lines_of(arguments.data, "customersim/customersim.train.jsonl.gz")
            full = list(itertools.islice(full_records(notes, tokenizer), min(arguments.records, 3000)))
            turns = list(itertools.islice(dialogues, arguments.records))
            for workers in arguments.workers:
                for name, texts in (("notes", full), ("turns", turns)):
                    found = measured(name, texts, tokenizer, folder, arguments.records, workers)
                    if arguments.json:
                        print(json.dumps({"benchmark": "scoring", **asdict(found)}), flush=True)
                        continue
                    core = "" if found.a_core is None else f", {found.a_core:,.0f} a second of a core"
                    print(
                        f"{found.corpus:9} vocabulary {found.vocabulary}, {found.workers} workers, {found.tokens_a_record:.0f} "
                        f"tokens each: {found.steady:,.0f} records/s ({found.whole:,.0f} with the start of the processes){core}",
                        flush=True,
                    )


if __name__ == "__main__":
    main()
