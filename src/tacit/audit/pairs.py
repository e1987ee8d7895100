"""Members and true non-members from any corpus with a random held-out part, for membership inference.

A text *qualifies* when it holds a secret, none is longer than a page, and none occurs in another unit, of either part. Whether it
does depends on the corpus and not on the split; on which side a unit falls is a random choice of its own
(`tacit.corpus.units.split_held_out`). So what
qualifies in the training part and what qualifies in the held-out part have one law, and the names "member" and "non-member" could
be exchanged: a model that saw nothing gives an accuracy of 1/2 exactly, and any other accuracy comes from the training.

The condition is on members too, though A.5 of Zhao et al. 2022 needs it of non-members alone. With the condition on one side, members
have the frequent secrets (common names, words that are marked by mistake) and non-members the rare ones, and an attack finds
that in a model that saw neither. The price: a secret that several units share is attacked on neither side.

One text a unit: texts of one unit are alike, and an interval that takes them for independent would be too short.
"""

from __future__ import annotations

import bisect
import re
import unicodedata
from collections.abc import Callable, Iterator, Mapping, Sequence

from tacit.audit.samples import MembershipSamples
from tacit.corpus.units import Unit
from tacit.randomness import KeyedRandomness

__all__ = ["Spans", "draw_pairs", "secret_spelling"]

Spans = Callable[[Sequence[str]], list[list[tuple[int, int]]]]
"""The secrets in each text, as (start, end) in code points; what it says of a text is a function of that text alone."""

_WORD = re.compile(r"[^\W_]+")
_HEAD = 4  # characters by which a run of words is known not to begin like any secret
_JUDGED_AT_ONCE = 2000
_LONGEST = 500  # characters of a secret; one of a whole page would be compared with every run of words of its length


def secret_spelling(text: str, start: int, end: int) -> str:
    """A secret as it is compared: all words that it touches, whole, without what stands between them, case and form folded.

    Empty where it touches no word.

    >>> secret_spelling("call (415) 555-0100 now", 5, 19) == secret_spelling("4155550100", 0, 10) == "4155550100"
    True
    """
    return _spellings(text, [(start, end)])[0]


def _spellings(text: str, spans: Sequence[tuple[int, int]]) -> list[str]:
    words = list(_WORD.finditer(text))
    begins, ends = [word.start() for word in words], [word.end() for word in words]
    touched = (words[bisect.bisect_right(ends, start) : bisect.bisect_left(begins, end)] for start, end in spans)
    return ["".join(_folded(word.group()) for word in own) for own in touched]


def draw_pairs(
    training: Sequence[Unit],
    held_out: Sequence[Unit],
    spans_of: Spans,
    at_most: int,
    streams: KeyedRandomness,
    elsewhere: Sequence[Unit] = (),
) -> MembershipSamples:
    """Draw as many members as non-members, each the text of another unit, by keyed random choices among those that qualify.

    Args:
        training: the units of the training part; a text of theirs is one data point.
        held_out: the others, as `tacit.corpus.units.split_held_out` gives them.
        spans_of: finds secrets; asked about as many units as it takes, not about all.
        at_most: pairs. There are fewer where fewer qualify, and none at all is possible.
        streams: draws units and texts.
        elsewhere: what was trained on besides, such as planted canaries: their secrets are nobody's own either.
    """
    corpus = [*training, *held_out, *elsewhere]
    members, others = (_own_texts(side, corpus, spans_of, at_most, streams) for side in (training, held_out))
    pairs = min(len(members), len(others))
    return MembershipSamples(tuple(members[:pairs]), tuple(others[:pairs]))


def _own_texts(
    side: Sequence[Unit], corpus: Sequence[Unit], spans_of: Spans, at_most: int, streams: KeyedRandomness
) -> list[str]:
    """A text of each of the first units, in keyed order, that have one which qualifies. Each batch doubles what was looked at."""
    order = sorted(side, key=lambda unit: streams.derive("membership-unit", unit.unit_id))
    found: list[str] = []
    looked_at = 0
    while looked_at < len(order) and len(found) < at_most:
        batch = order[looked_at : 2 * max(looked_at, at_most)]
        looked_at += len(batch)
        found += _chosen(batch, corpus, spans_of, streams)
    return found[:at_most]


def _chosen(batch: Sequence[Unit], corpus: Sequence[Unit], spans_of: Spans, streams: KeyedRandomness) -> Iterator[str]:
    """A keyed choice for each unit of the batch among its texts that qualify, if there is one."""
    texts = [(unit, text) for unit in batch for text in dict.fromkeys(unit.texts)]
    secrets = _secrets([text for _, text in texts], spans_of)
    homes: dict[str, Unit] = {}
    for (unit, _), own in zip(texts, secrets, strict=True):
        for secret in own:
            homes.setdefault(secret, unit)
    shared = _shared(homes, corpus)
    qualified: dict[str, list[str]] = {}
    for (unit, text), own in zip(texts, secrets, strict=True):
        if own and not own & shared:
            qualified.setdefault(unit.unit_id, []).append(text)
    for name, candidates in qualified.items():
        yield min(candidates, key=lambda text, name=name: streams.derive("membership-text", name, text))


def _secrets(texts: Sequence[str], spans_of: Spans) -> list[set[str]]:
    """The spellings of the secrets in each text; none where one of them is too long to be looked for in all others."""
    found: list[set[str]] = []
    for start in range(0, len(texts), _JUDGED_AT_ONCE):
        part = texts[start : start + _JUDGED_AT_ONCE]
        for text, spans in zip(part, spans_of(part), strict=True):
            own = set(_spellings(text, spans)) - {""}
            found.append(own if all(len(secret) <= _LONGEST for secret in own) else set())
    return found


def _shared(homes: Mapping[str, Unit], corpus: Sequence[Unit]) -> set[str]:
    """The secrets that a unit other than their home spells with whole words, marked there or not, alone or within more."""
    longest: dict[str, int] = {}
    for secret in homes:
        longest[secret[:_HEAD]] = max(longest.get(secret[:_HEAD], 0), len(secret))
    return {
        run
        for unit in corpus
        for run in _runs(_words("\n".join(unit.texts)), homes, longest)  # a line break inside a secret hides nothing
        if homes[run] is not unit
    }


def _runs(words: Sequence[str], secrets: Mapping[str, object], longest: Mapping[str, int]) -> Iterator[str]:
    """The runs of whole words that spell a secret; ``longest``: of the secrets with the same first characters."""
    for start in range(len(words)):
        run = ""
        for place in range(start, len(words)):
            run += words[place]
            if run in secrets:
                yield run
            if len(run) >= _HEAD and len(run) >= longest.get(run[:_HEAD], 0):
                break


def _words(text: str) -> list[str]:
    return _WORD.findall(text.lower()) if text.isascii() else [_folded(word) for word in _WORD.findall(text)]


def _folded(word: str) -> str:
    return word.lower() if word.isascii() else unicodedata.normalize("NFKC", word).casefold()
