"""What each way to choose a private vocabulary gives at one budget: words, token coverage, whole words, pieces a word.

Run ``python benchmarks/vocabulary.py DATA [--epsilons 0.5 1 3] [--delta 1e-6] [--json FILE]``, DATA being a folder
with mtsamples, medquad and wikitext-2. The unit is the document. The public words are those of MedQuAD and WikiText-2.

words      that came from the private text through the mechanism
covered    share of the corpus's tokens that are words of the vocabulary, public ones included
whole      share that the WordPiece tokenizer trained on the release reads as one piece
pieces     pieces a token

With ``--counting N`` it measures the counting instead: of the notes of mtsamples in memory, and of made-up text with N distinct words
under ``--memory-mb``. Seconds are of the processor, of one core, so that other processes matter less; making up text is not counted.
"""

from __future__ import annotations

import argparse
import gzip
import json
import math
import resource
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from collections.abc import Set as AbstractSet
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from tacit.privacy.accounting.accountant import epsilon
from tacit.privacy.accounting.calibrate_words import RESOLUTION, WordEvents, histogram_and_counts, weighted_rounds
from tacit.privacy.accounting.histogram import hoory_claim
from tacit.privacy.events import ThresholdedHistogram, WeightedHistogram
from tacit.randomness import KeyedRandomness
from tacit.vocabulary.count import ContributionBound, count_distinct, count_words, sorted_word_counts
from tacit.vocabulary.estimate import ChosenWords, estimate_counts, weights_as_counts
from tacit.vocabulary.public_words import count_public_words
from tacit.vocabulary.select import draw_noise, noisy_counts, release
from tacit.vocabulary.tally import Spill, spill_folder
from tacit.vocabulary.tokenizer import MAX_WORD_LENGTH, TokenizerOptions, build_tokenizer, words_of
from tacit.vocabulary.wordpiece import train_wordpiece

METHODS = ("histogram", "weighted", "sips")


@dataclass(frozen=True)
class Row:
    """One method at one budget; ``words`` is the mean over the repetitions, the rest is of the first."""

    epsilon: float
    method: str
    public: bool
    certified: float
    words: float
    covered: float
    whole: float
    pieces: float
    first_threshold: float
    last_threshold: float


@dataclass(frozen=True)
class Corpus:
    """The distinct countable words of each unit, and how often each word occurs in all of them."""

    units: list[tuple[str, frozenset[str]]]
    tokens: Counter[str]

    def counting_only(self, words: AbstractSet[str]) -> Corpus:
        """The same text, whose units count these words alone; where the words are public, the law is the same."""
        return Corpus([(name, unit & words) for name, unit in self.units], self.tokens)

    @classmethod
    def of(cls, texts: Iterable[tuple[str, str]], options: TokenizerOptions) -> Corpus:
        alphabet = frozenset(options.alphabet)
        units, tokens = [], Counter[str]()
        for name, text in texts:
            words = words_of(text, options)
            tokens.update(words)
            countable = (word for word in set(words) if len(word) <= MAX_WORD_LENGTH and alphabet.issuperset(word))
            units.append((name, frozenset(countable)))
        return cls(units, tokens)


def rows_of(path: Path) -> Iterator[dict[str, str]]:
    with gzip.open(path, "rt", encoding="utf-8") as file:
        yield from (json.loads(line) for line in file)


def public_words(data: Path, options: TokenizerOptions, least: int) -> dict[str, int]:
    """Counts of the words of MedQuAD and of WikiText-2."""
    texts = [text for row in rows_of(data / "medquad/medquad.jsonl.gz") for text in (row["question"], row["answer"])]
    with gzip.open(data / "wikitext-2/wikitext-2-raw.train.txt.gz", "rt", encoding="utf-8") as file:
        texts += file.readlines()
    return count_public_words((text for text in texts if text), options, least)


def events_of(method: str, target: float, arguments: argparse.Namespace) -> WordEvents:
    delta, max_words = arguments.delta, arguments.max_words
    if method == "hoory":
        return WordEvents((hoory_corrected(target, delta, max_words),))
    if method == "histogram":
        return histogram_and_counts(target, delta, max_words, arguments.counts_share)
    shares = tuple(arguments.rounds) if method == "sips" else (1.0,)
    return weighted_rounds(target, delta, max_words, shares, arguments.counts_share)


def hoory_corrected(target: float, delta: float, max_words: int) -> ThresholdedHistogram:
    """Corollary 1 of Hoory et al. with the threshold that its delta takes: half of delta for it, half for the classic Gaussian."""
    noise = math.sqrt(max_words * 2 * math.log(1.25 / (delta / 2))) / target
    return ThresholdedHistogram(noise, math.ceil(hoory_claim(noise, max_words, delta / 2).correct_threshold), max_words)


def choose(corpus: Corpus, events: WordEvents, public: frozenset[str], streams: KeyedRandomness) -> list[ChosenWords]:
    """What the rounds release."""
    known, rounds = set(public), []
    for event in events.rounds:
        resolution = event.resolution if isinstance(event, WeightedHistogram) else None
        weights = count_distinct(corpus.units, event.max_words, streams, resolution=resolution, without=known)
        chosen = release(weights, draw_noise(len(weights), event.noise_stddev), int(event.threshold))
        known |= chosen.keys()
        rounds.append(ChosenWords(chosen, event.noise_stddev))
    return rounds


def measure(corpus: Corpus, method: str, public: dict[str, int], target: float, arguments: argparse.Namespace) -> Row:
    events = events_of(method, target, arguments)
    streams, options = KeyedRandomness(bytes(32)), TokenizerOptions()
    runs = [choose(corpus, events, frozenset(public), streams) for _ in range(arguments.repetitions)]
    numbers = [sum(len(chosen.weights) for chosen in rounds) for rounds in runs]
    known = set(public).union(*(chosen.weights for chosen in runs[0]))
    released = released_counts(corpus, events, public, runs[0], streams)
    pieces = train_wordpiece(released, arguments.size, options.alphabet)
    lengths = pieces_of(corpus, build_tokenizer(pieces, options))
    total = corpus.tokens.total()
    scale = [event.resolution if isinstance(event, WeightedHistogram) else 1 for event in events.rounds]
    return Row(
        epsilon=target,
        method=method,
        public=bool(public),
        certified=epsilon(events.spends(), arguments.delta),
        words=sum(numbers) / len(numbers),
        covered=sum(corpus.tokens[word] for word in known) / total,
        whole=sum(count for word, count in corpus.tokens.items() if lengths[word] == 1) / total,
        pieces=sum(count * lengths[word] for word, count in corpus.tokens.items()) / total,
        first_threshold=events.rounds[0].threshold / scale[0],
        last_threshold=events.rounds[-1].threshold / scale[-1],
    )


def released_counts(
    corpus: Corpus, events: WordEvents, public: dict[str, int], rounds: list[ChosenWords], streams: KeyedRandomness
) -> dict[str, int]:
    """What WordPiece is trained on."""
    if events.counts is None and isinstance(events.rounds[0], WeightedHistogram):
        return weights_as_counts(rounds, RESOLUTION)
    if events.counts is None:
        return dict(rounds[0].weights)
    words = sorted(set(public).union(*(chosen.weights for chosen in rounds)))
    counts = count_distinct(corpus.units, events.counts.max_words, streams, only=set(words))
    noisy = noisy_counts(words, counts, draw_noise(len(words), events.counts.noise_stddev))
    return estimate_counts(noisy, events.counts.noise_stddev, public, rounds)


def pieces_of(corpus: Corpus, tokenizer: object) -> dict[str, int]:
    """Pieces of each word; a word that cannot be spelled counts as two, not as a whole one."""
    from tokenizers import Tokenizer

    assert isinstance(tokenizer, Tokenizer)
    tokenizer.encode_special_tokens = True
    lengths = {}
    for word in corpus.tokens:
        tokens = tokenizer.encode(word, add_special_tokens=False).tokens
        lengths[word] = 2 if "[UNK]" in tokens else len(tokens)
    return lengths


def markdown(rows: list[Row]) -> str:
    lines = [
        "| epsilon | method | public words | words | covered | whole words | pieces a token |",
        "|---|---|---|---|---|---|---|",
    ]
    lines += [
        f"| {row.epsilon:g} | {row.method} | {'yes' if row.public else 'no'} | {row.words:.0f} | {row.covered:.3f} | "
        f"{row.whole:.3f} | {row.pieces:.3f} |"
        for row in rows
    ]
    return "\n".join(lines)


class MadeUpText:
    """Units of 100 words that no other unit has, and 200 that are common; and the seconds that it took to make them up."""

    NEW, COMMON = 100, 200

    def __init__(self, distinct: int) -> None:
        self.units = distinct // self.NEW
        self.words = self.units * (self.NEW + self.COMMON)
        self.seconds = 0.0

    def __iter__(self) -> Iterator[tuple[str, tuple[str]]]:
        start = time.process_time()
        generator = np.random.default_rng(7)
        ranks = generator.zipf(1.2, (1000, self.COMMON)) % 20_000
        common = [" ".join(f"common{rank}" for rank in row) for row in ranks]
        for unit in range(self.units):
            # An odd factor: the numbers are all different, and in no order.
            new = [f"{(0x9E3779B97F * n) % (1 << 40):010x}" for n in range(unit * self.NEW, (unit + 1) * self.NEW)]
            text = f"{common[unit % 1000]} {' '.join(new)}"
            self.seconds += time.process_time() - start
            yield f"unit-{unit}", (text,)
            start = time.process_time()
        self.seconds += time.process_time() - start


def measure_counting(data: Path, distinct: int, memory_mb: int, max_words: int) -> None:
    """Print words a second and the memory at most; the numbers of "Counting" in docs/vocabulary.md."""
    streams, options = KeyedRandomness(bytes(32)), TokenizerOptions()
    notes = [(row["note_id"], (row["text"],)) for row in rows_of(data / "mtsamples/mtsamples.jsonl.gz")]
    words = sum(len(text.split()) for _, texts in notes for text in texts)
    for method, resolution in (("histogram", None), ("weighted", 65_536)):
        start = time.process_time()
        counts = count_words(notes, max_words, streams, options, resolution=resolution)
        seconds = time.process_time() - start
        print(f"mtsamples, {method}: {words} words, {len(counts)} distinct, {words / seconds:,.0f} words a second")
    made_up = MadeUpText(distinct)
    with tempfile.TemporaryDirectory() as folder, spill_folder(Path(folder) / "counting") as place:
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        start = time.process_time()
        counts = sorted_word_counts(
            made_up, ContributionBound(max_words, streams, 65_536), options, Spill(place, memory_mb)
        )
        seconds = time.process_time() - start - made_up.seconds
        files = sum(path.stat().st_size for path in place.rglob("*")) / 2**20
        release(counts, np.zeros(len(counts), dtype=np.int64), 10**9)
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(
        f"made up, {memory_mb} MiB: {made_up.words} words, {len(counts)} distinct, {seconds:.1f} s, "
        f"{made_up.words / seconds:,.0f} words a second, at most {peak:,.0f} MiB (before: {before:,.0f}), {files:,.0f} MiB of files"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description="Compare the methods of the private vocabulary on one corpus.")
    parser.add_argument("data", type=Path, help="folder with mtsamples, medquad and wikitext-2")
    parser.add_argument("--epsilons", type=float, nargs="+", default=[0.5, 1.0, 3.0])
    parser.add_argument("--methods", nargs="+", default=METHODS, choices=[*METHODS, "hoory"])
    parser.add_argument(
        "--lists", nargs="+", default=["no", "yes"], choices=["no", "yes"], help="without or with public words"
    )
    parser.add_argument("--rounds", type=float, nargs="+", default=[0.02, 0.06, 0.2, 0.72], help="of sips: shares")
    parser.add_argument(
        "--counts-share", type=float, default=0.15, help="of the squared budget; 0: no counts, and no public words"
    )
    parser.add_argument("--prior", type=int, help="count only so many words, the most frequent ones of public text")
    parser.add_argument("--delta", type=float, default=1e-6)
    parser.add_argument("--max-words", type=int, default=256, help="words of a unit that count")
    parser.add_argument("--size", type=int, default=30_000, help="pieces of the tokenizer")
    parser.add_argument("--least", type=int, default=2, help="public words occur at least this often in public text")
    parser.add_argument("--repetitions", type=int, default=3, help="draws of the noise that `words` is the mean of")
    parser.add_argument("--json", type=Path, help="write the rows there")
    parser.add_argument("--counting", type=int, metavar="N", help="measure counting, with N distinct made-up words")
    parser.add_argument("--memory-mb", type=int, default=512, help="MiB of words in memory, with --counting")
    arguments = parser.parse_args()
    if arguments.counting:
        measure_counting(arguments.data, arguments.counting, arguments.memory_mb, arguments.max_words)
        return
    if "yes" in arguments.lists and (arguments.counts_share == 0 or "hoory" in arguments.methods):
        parser.error("hoory and --counts-share 0 are without public words: add --lists no")
    options = TokenizerOptions()
    notes = rows_of(arguments.data / "mtsamples/mtsamples.jsonl.gz")
    corpus = Corpus.of(((row["note_id"], row["text"]) for row in notes), options)
    if arguments.prior:
        frequent = public_words(arguments.data, options, arguments.least)
        corpus = corpus.counting_only(
            set(sorted(frequent, key=lambda word: (-frequent[word], word))[: arguments.prior])
        )
    lists = [
        public_words(arguments.data, options, arguments.least) if name == "yes" else {} for name in arguments.lists
    ]
    print(f"{len(corpus.units)} units, {corpus.tokens.total()} tokens, {len(lists[-1])} public words", file=sys.stderr)
    rows = []
    for target in arguments.epsilons:
        for public in lists:
            for method in arguments.methods:
                start = time.perf_counter()
                rows.append(measure(corpus, method, public, target, arguments))
                print(rows[-1], f"{time.perf_counter() - start:.0f} s", file=sys.stderr, flush=True)
                if arguments.json:
                    arguments.json.write_text(json.dumps([asdict(row) for row in rows], indent=1) + "\n")
    print(markdown(rows))


if __name__ == "__main__":
    main()
