"""The stage `vocabulary`: the run's tokenizer, from a DP histogram of words, from text without noise, or given."""

from __future__ import annotations

import hashlib
import json
import sys
from collections import Counter
from collections.abc import Set as AbstractSet
from pathlib import Path

import numpy as np

from tacit.corpus.units import Unit
from tacit.files import private_folder, write_atomically, write_json
from tacit.pipeline.corpus import check_corpora, marked_texts, private_units, public_units, screened_units
from tacit.pipeline.state import RunState
from tacit.planning import VOCABULARY, VOCABULARY_COUNTS, vocabulary_round
from tacit.planning.given import given_tokenizer, reserved_tokens
from tacit.privacy.accounting.calibrate_words import RESOLUTION, WordEvents
from tacit.privacy.events import ThresholdedHistogram, WeightedHistogram, WordCounts
from tacit.vocabulary.count import count_words, sorted_word_counts
from tacit.vocabulary.estimate import ChosenWords, estimate_counts, weights_as_counts
from tacit.vocabulary.public_words import OFTEN, count_public_words, read_public_words
from tacit.vocabulary.select import draw_noise, noisy_counts, release
from tacit.vocabulary.tally import SortedCounts, Spill, spill_folder
from tacit.vocabulary.tokenizer import TokenizerOptions, build_tokenizer
from tacit.vocabulary.wordpiece import train_wordpiece

__all__ = ["vocabulary"]


def vocabulary(state: RunState) -> None:
    """Write the tokenizer: WordPiece from a histogram of words, released under its event (Hoory 3.2), or a given one."""
    folder = private_folder(state.vocabulary_folder)
    check_corpora(state)
    options = state.config.vocabulary
    if options.method == "given":
        _write_given(state, folder)
        return
    text = TokenizerOptions(lowercase=options.lowercase)
    event = state.mechanisms.vocabulary
    if isinstance(event, ThresholdedHistogram):
        released = _released_words(state, event, folder, text)
    elif isinstance(event, WordEvents):
        released = _words_in_rounds(state, event, folder, text)
    else:
        released = _words_without_noise(state, text)
    write_json(folder / "released.json", released)
    if not released:
        state.reporter.say("Vocabulary: no word reached the threshold; the tokenizer has single characters only")
    reserved = reserved_tokens(state.config)
    size = options.size - len(reserved)
    pieces = train_wordpiece(released, size, text.alphabet, min_frequency=options.min_count)
    tokenizer = build_tokenizer(pieces, text, reserved)
    write_atomically(folder / "tokenizer.json", lambda partial: tokenizer.save(str(partial)))
    state.reporter.say(f"Vocabulary: {len(released)} words released, {len(pieces)} pieces")


def _write_given(state: RunState, folder: Path) -> None:
    """The given tokenizer: nothing is released from the private text."""
    given = given_tokenizer(state.config)
    write_json(folder / "released.json", {})
    write_json(folder / "special_tokens.json", dict(given.names))
    write_atomically(folder / "tokenizer.json", lambda partial: given.tokenizer.save(str(partial)))
    state.reporter.say(f"Vocabulary: given, {given.special.size} entries")


def _released_words(
    state: RunState, event: ThresholdedHistogram, folder: Path, text: TokenizerOptions
) -> dict[str, int]:
    """Noisy counts of the private words that reach the threshold."""
    state.reporter.say("Vocabulary: counting words under the contribution bound ...")
    return _thresholded(state, VOCABULARY, event, folder, text, frozenset())


def _thresholded(
    state: RunState,
    stage: str,
    event: ThresholdedHistogram | WeightedHistogram,
    folder: Path,
    text: TokenizerOptions,
    known: AbstractSet[str],
) -> dict[str, int]:
    """One release of words that are not known yet: counted, charged, and above the threshold with their noise."""
    resolution = event.resolution if isinstance(event, WeightedHistogram) else None
    units = ((unit.unit_id, unit.texts) for unit in private_units(state)[0])
    streams = state.streams.child("vocabulary")
    with spill_folder(state.folder.private / "counting") as place:
        spill = Spill(place, state.config.compute.counting_memory_mb)
        counts = sorted_word_counts(units, event.max_words, streams, text, spill, resolution=resolution, without=known)
        noise = _vocabulary_noise(state, stage, event.noise_stddev, folder, counts)
        state.ledger.charge(stage)
        return release(counts, noise, int(event.threshold))


def _words_in_rounds(state: RunState, events: WordEvents, folder: Path, text: TokenizerOptions) -> dict[str, int]:
    """Public words and those that the rounds choose, each with a count of at least 1 estimated from what was released."""
    public = _public_words(state, text)
    known, rounds = set(public), []
    for number, event in enumerate(events.rounds):
        state.reporter.say(f"Vocabulary: choosing words, round {number + 1} of {len(events.rounds)} ...")
        chosen = _thresholded(state, vocabulary_round(number), event, folder, text, known)
        known |= chosen.keys()
        rounds.append(ChosenWords(chosen, event.noise_stddev))
    write_json(folder / "chosen.json", sorted(known - public.keys()))
    if events.counts is None:
        return weights_as_counts(rounds, RESOLUTION)
    noisy = _counts_of_known(state, events.counts, folder, text, known)
    return estimate_counts(noisy, events.counts.noise_stddev, public, rounds)


def _public_words(state: RunState, text: TokenizerOptions) -> dict[str, int]:
    """Of the lists, and of the public corpora where the run says so; a run does not go on with others than it began with."""
    options = state.config.vocabulary
    found = Counter(read_public_words(options.public_word_paths, text))
    if options.public_corpora:
        units = public_units(state)[0]
        own = count_public_words((one for unit in units for one in unit.texts), text, least=OFTEN)
        digest = hashlib.sha256(json.dumps(own, sort_keys=True).encode())
        state.ledger.bind("the words of the public corpora", digest.hexdigest())
        found.update(own)
    return dict(found)


def _counts_of_known(
    state: RunState, event: WordCounts, folder: Path, text: TokenizerOptions, known: set[str]
) -> dict[str, int]:
    """Noisy counts of words that are public by now."""
    state.reporter.say(f"Vocabulary: counting {len(known)} words ...")
    units = ((unit.unit_id, unit.texts) for unit in private_units(state)[0])
    counts = count_words(units, event.max_words, state.streams.child("vocabulary"), text, only=known)
    all_counts = SortedCounts.of({word: counts.get(word, 0) for word in known})
    noise = _vocabulary_noise(state, VOCABULARY_COUNTS, event.noise_stddev, folder, all_counts)
    state.ledger.charge(VOCABULARY_COUNTS)
    return noisy_counts(sorted(known), counts, noise)


def _words_without_noise(state: RunState, text: TokenizerOptions) -> dict[str, int]:
    """All words of the public corpora; where there are none, of the screened or unmarked text, whose release the ledger holds."""
    state.reporter.say("Vocabulary: counting words ...")
    if state.config.public:
        return _word_counts(state, public_units(state)[0], sys.maxsize, text)
    state.ledger.charge(VOCABULARY)
    units = screened_units(state) if state.config.marking is None else _unmarked_units(state)
    return _word_counts(state, units, sys.maxsize, text)


def _unmarked_units(state: RunState) -> list[Unit]:
    """What is public of the marked text: no word of it is, or is beside, a private one."""
    return [Unit(marked.unit.unit_id, (marked.public_text,)) for marked in marked_texts(state)]


def _word_counts(state: RunState, units: list[Unit], most: int, text: TokenizerOptions) -> dict[str, int]:
    return count_words(((unit.unit_id, unit.texts) for unit in units), most, state.streams.child("vocabulary"), text)


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
        noise = draw_noise(len(counts), noise_stddev)
        write_atomically(path, lambda partial: _save_array(partial, noise))
    digest = hashlib.blake2b(path.read_bytes(), key=state.streams.derive("noise digest"), digest_size=32)
    bound = "the vocabulary's noise" if stage == VOCABULARY else f"the noise of {stage}"
    state.ledger.bind(bound, digest.hexdigest())
    return np.load(path)


def _save_array(path: Path, array: np.ndarray) -> None:
    with path.open("wb") as file:
        np.save(file, array)
