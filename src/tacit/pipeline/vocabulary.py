"""The stage `vocabulary`: the run's tokenizer, from the words that the run's method releases, or given."""

from __future__ import annotations

import hashlib
import json
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from pathlib import Path
from typing import final

import numpy as np

from tacit.config.vocabulary_methods.method import WordSource
from tacit.corpus.units import Unit
from tacit.errors import LedgerError, UsageError
from tacit.files import private_folder, write_atomically, write_json, write_text
from tacit.pipeline.corpus import check_corpora, marked_texts, private_units, public_units, screened_units
from tacit.pipeline.on_spark import private_on_spark
from tacit.pipeline.state import RunState
from tacit.planning import VOCABULARY, VOCABULARY_COUNTS
from tacit.planning.given import chat_template, given_tokenizer, has_chats, reserved_tokens
from tacit.planning.vocabulary import vocabulary_releases
from tacit.privacy.accounting.calibrate_words import RESOLUTION
from tacit.privacy.events import Event
from tacit.privacy.words import WordRelease, word_release
from tacit.runs.stages import Stage, always
from tacit.vocabulary.chat_template import TEMPLATE_FILE, own_template
from tacit.vocabulary.count import ContributionBound, count_words, sorted_word_counts
from tacit.vocabulary.estimate import ChosenWords, estimate_counts, weights_as_counts
from tacit.vocabulary.public_words import OFTEN, count_public_words, read_public_words
from tacit.vocabulary.select import noise_blocks, noisy_counts, release
from tacit.vocabulary.tally import SortedCounts, Spill, spill_folder
from tacit.vocabulary.tokenizer import TokenizerOptions, build_tokenizer
from tacit.vocabulary.wordpiece import train_wordpiece

__all__ = ["STAGE", "vocabulary"]


def vocabulary(state: RunState) -> None:
    """Write the tokenizer: WordPiece from the words that the method releases under its events, or a given one.

    Raises:
        LedgerError: the method gave words without a release that it had planned, so the ledger does not say how it came by them.
    """
    folder = private_folder(state.vocabulary_folder)
    check_corpora(state)
    options = state.config.vocabulary
    if options.how.brings_tokenizer:
        _write_given(state, folder)
        return
    if has_chats(state.config):
        _write_template(folder, own_template())
    text = TokenizerOptions(lowercase=options.lowercase)
    event = state.mechanisms.vocabulary
    source = _PaidWords(state, folder, text, vocabulary_releases(event))
    released = options.how.release(event, source)
    source.refuse_unpaid()
    if event is not None and (event.chooses_words_in_rounds or source.brought != released.keys()):
        write_json(folder / "chosen.json", sorted(source.brought))  # of those words, what the private text brought
    write_json(folder / "released.json", released)
    if not released:
        state.reporter.say("Vocabulary: no word reached the threshold; the tokenizer has single characters only")
    reserved = reserved_tokens(state.config)
    size = options.size - len(reserved)
    pieces = train_wordpiece(released, size, text.alphabet, min_frequency=options.min_count)
    tokenizer = build_tokenizer(pieces, text, reserved)
    write_atomically(folder / "tokenizer.json", lambda partial: tokenizer.save(str(partial)))
    state.reporter.say(f"Vocabulary: {len(released)} words released, {len(pieces)} pieces")


STAGE = Stage(
    "vocabulary",
    always,
    lambda state: (state.folder.private / "vocabulary" / "tokenizer.json").exists(),
    vocabulary,
)


def _write_given(state: RunState, folder: Path) -> None:
    """The given tokenizer: nothing is released from the private text."""
    given = given_tokenizer(state.config)
    write_json(folder / "released.json", {})
    write_json(folder / "special_tokens.json", dict(given.names))
    template = chat_template(state.config, given)
    if template is not None:
        _write_template(folder, template)
    write_atomically(folder / "tokenizer.json", lambda partial: given.tokenizer.save(str(partial)))
    state.reporter.say(f"Vocabulary: given, {given.special.size} entries")


def _write_template(folder: Path, template: str) -> None:
    write_text(folder / TEMPLATE_FILE, template)


@final
@dataclass(frozen=True)
class _PaidWords(WordSource):
    """The words of one open run. Every release goes through `release_under`, and there through one order of steps.

    Args:
        events: of the planned releases, by stage.
        brought: words that the private text has brought so far.
    """

    state: RunState
    folder: Path
    text: TokenizerOptions
    events: Mapping[str, Event]
    brought: set[str] = field(default_factory=set)

    def release_under(self, stage: str, known: AbstractSet[str] = frozenset()) -> dict[str, int]:
        event = self.events.get(stage)
        if event is None:
            raise UsageError(
                f"vocabulary.method: {self._method} asks for the release {stage!r}, which it did not plan; mend the method"
            )
        if not event.is_private:
            found = self._without_noise(stage)
        else:
            how = word_release(event)
            found = self._counts_of(stage, how, known) if how.threshold is None else self._chosen(stage, how, known)
        self.brought.update(found.keys() - known)
        return found

    def public_words(self) -> dict[str, int]:
        """A run does not go on with others than it began with."""
        options = self.state.config.vocabulary
        found = Counter(read_public_words(options.public_word_paths, self.text))
        if options.public_corpora:
            texts = (one for unit in public_units(self.state)[0] for one in unit.texts)
            own = count_public_words(texts, self.text, least=OFTEN)
            digest = hashlib.sha256(json.dumps(own, sort_keys=True).encode())
            self.state.ledger.bind("the words of the public corpora", digest.hexdigest())
            found.update(own)
        return dict(found)

    def words_of_public_corpora(self) -> dict[str, int]:
        self._say("counting words ...")
        return self._all_words(public_units(self.state)[0])

    def estimated(
        self, public: Mapping[str, int], rounds: Mapping[str, Mapping[str, int]], counts: Mapping[str, int] | None
    ) -> dict[str, int]:
        chosen = [ChosenWords(words, word_release(self.events[stage]).noise_stddev) for stage, words in rounds.items()]
        if counts is None:
            return weights_as_counts(chosen, RESOLUTION)
        return estimate_counts(counts, word_release(self.events[VOCABULARY_COUNTS]).noise_stddev, public, chosen)

    def refuse_unpaid(self) -> None:
        """Refuse words that were made without a planned release: nobody knows then what they come from.

        Raises:
            LedgerError: names the release.
        """
        unpaid = [stage for stage in self.events if not self.state.ledger.spent(stage)]
        if unpaid:
            raise LedgerError(
                f"vocabulary.method: {self._method} gave words without its release {unpaid[0]!r}, which is not paid for; mend the "
                "method"
            )

    def _chosen(self, stage: str, how: WordRelease, known: AbstractSet[str]) -> dict[str, int]:
        """Words that are not known yet: counted, charged, and above the threshold with their noise."""
        assert how.threshold is not None
        self._say(_progress(stage, list(self.events)))
        streams = self.state.streams.child("vocabulary")
        with spill_folder(self.state.folder.private / "counting") as place:
            spill = Spill(place, self.state.config.compute.counting_memory_mb)
            bound = ContributionBound(how.max_words, streams, how.resolution, known)
            counts = self._sums(bound, spill)
            return release(counts, self._paid_noise(stage, how, counts), how.threshold)

    def _counts_of(self, stage: str, how: WordRelease, known: AbstractSet[str]) -> dict[str, int]:
        """Noisy counts of words that are public by now."""
        self._say(f"counting {len(known)} words ...")
        bound = ContributionBound(how.max_words, self.state.streams.child("vocabulary"), how.resolution, only=known)
        with spill_folder(self.state.folder.private / "counting") as place:
            counts = dict(self._sums(bound, Spill(place, self.state.config.compute.counting_memory_mb)))
        all_counts = SortedCounts.of({word: counts.get(word, 0) for word in known})
        return noisy_counts(sorted(known), counts, self._paid_noise(stage, how, all_counts))

    def _sums(self, bound: ContributionBound, spill: Spill) -> SortedCounts:
        """Weighted counts of the words of the units that are trained on, made here or on Spark."""
        units, on_spark = private_units(self.state)[0], private_on_spark(self.state)
        if on_spark is not None:
            return on_spark.counts(bound, self.text, units.behind, spill)
        return sorted_word_counts(_texts(units), bound, self.text, spill, ids_differ=True)

    def _without_noise(self, stage: str) -> dict[str, int]:
        """All words, of the screened or unmarked text where there is one: in the ledger it has no guarantee."""
        self._say("counting words ...")
        self.state.ledger.charge(stage)
        if self.state.config.screening is not None:
            return self._all_words(screened_units(self.state))
        if self.state.config.marking is not None:
            return self._all_words(_unmarked_units(self.state))
        return self._all_words(private_units(self.state)[0])

    def _all_words(self, units: Iterable[Unit]) -> dict[str, int]:
        streams = self.state.streams.child("vocabulary")
        return count_words(_texts(units), sys.maxsize, streams, self.text, ids_differ=True)

    def _paid_noise(self, stage: str, how: WordRelease, counts: SortedCounts) -> np.ndarray:
        """The noise of one release, which is on disk, bound and paid for when this returns, and has met no count before."""
        noise = _vocabulary_noise(self.state, stage, how.noise_stddev, self.folder, counts)
        self.state.ledger.charge(stage)
        return noise

    @property
    def _method(self) -> str:
        return self.state.config.vocabulary.method

    def _say(self, what: str) -> None:
        self.state.reporter.say(f"Vocabulary: {what}")


def _progress(stage: str, stages: Sequence[str]) -> str:
    """What is being done, for who waits."""
    rounds = [name for name in stages if name != VOCABULARY_COUNTS]
    if len(stages) == 1:
        return "counting words under the contribution bound ..."
    return f"choosing words, round {rounds.index(stage) + 1} of {len(rounds)} ..."


def _texts(units: Iterable[Unit]) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Ids and texts of units from a store, whose ids differ; planted ones behind them have keyed ids."""
    return ((unit.unit_id, unit.texts) for unit in units)


def _unmarked_units(state: RunState) -> Iterator[Unit]:
    """What is public of the marked text: no word of it is, or is beside, a private one."""
    return (Unit(marked.unit.unit_id, (marked.public_text,)) for marked in marked_texts(state))


def _vocabulary_noise(
    state: RunState, stage: str, noise_stddev: float, folder: Path, counts: SortedCounts
) -> np.ndarray:
    """The noise of one release, drawn once: on disk, and its keyed digest in the ledger, before it meets a count.

    A killed run therefore repeats the same release, and other noise (a second release for the price of one) is refused. The file's
    name is a keyed digest of the counts that it hides: a restored backup never puts it on others (docs/decisions/0007).
    """
    hidden = hashlib.blake2b(
        f"{stage}\n{noise_stddev!r}\n".encode(), key=state.streams.derive("counts"), digest_size=16
    )
    for word, count in counts:
        spelled = word.encode("utf-8", "surrogatepass")
        hidden.update(b"%d %b %d\n" % (len(spelled), spelled, count))
    path = folder / f"noise{stage.removeprefix(VOCABULARY).replace(' ', '-')}-{hidden.hexdigest()}.npy"
    if not path.exists():
        write_atomically(path, lambda partial: _save_noise(partial, len(counts), noise_stddev))
    key = state.streams.derive("noise digest")
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, lambda: hashlib.blake2b(key=key, digest_size=32))
    bound = "the vocabulary's noise" if stage == VOCABULARY else f"the noise of {stage}"
    state.ledger.bind(bound, digest.hexdigest())
    return np.load(path, mmap_mode="r")


def _save_noise(path: Path, count: int, noise_stddev: float) -> None:
    """Draw it into a file of numpy's, a block at a time: 10^8 words have 800 MB of noise."""
    header = {"descr": "<i8", "fortran_order": False, "shape": (count,)}
    with path.open("wb") as file:
        np.lib.format.write_array_header_1_0(file, header)
        for block in noise_blocks(count, noise_stddev):
            file.write(block.astype("<i8", copy=False).tobytes())
