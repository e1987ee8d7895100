"""Members and true non-members of MultiWOZ, for membership inference: turns with a reference number (Zhao et al. 2022, A.5).

Of the files at hand two have gold spans of reference numbers, ConvLab-2's validation and test dialogues. The validation dialogues
are trained on (with the first shard of MultiWOZ 2.2's training dialogues, which have no spans), the test dialogues are not. The
development dialogues of MultiWOZ 2.2 are the validation dialogues again, spelled otherwise: they are no held-out text.
"""

from __future__ import annotations

import re
import string
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from tacit.audit.samples import MembershipSamples, Pair, alphanumeric, check_count, chosen, samples_of
from tacit.corpus.readers import read_objects
from tacit.corpus.source import Source
from tacit.corpus.turns import Turn, Turns, read_turn
from tacit.errors import DataError
from tacit.randomness import KeyedRandomness

__all__ = ["multiwoz_pairs", "multiwoz_samples"]

_TRAINED_ON = "multiwoz-convlab2.val.jsonl.gz"
_FILES = (
    _TRAINED_ON,
    "multiwoz-convlab2.test.jsonl.gz",
    "multiwoz22.dev.bio.jsonl.gz",
    "multiwoz22.train-shard001.text.jsonl.gz",
)
_SLOT = "Ref"
_SHORTEST = 6  # letters and digits; what is shorter ("##") is no number that a turn could be known by
_TOKEN = re.compile(r"\S+")
_CLASSES = (string.digits, string.ascii_uppercase, string.ascii_lowercase)


def multiwoz_samples(
    folder: Path, count: int, streams: KeyedRandomness, turns: Turns | None = None
) -> MembershipSamples:
    """Members and true non-members of MultiWOZ.

    A member is a turn of the training dialogues with a reference number that no earlier member has. Its non-member is the same
    turn with a number drawn at random in its place: of the same length, with a digit, capital or small letter wherever the true
    number has one, and such that no turn of any of the four files holds it, whatever the spelling. A turn with several reference
    numbers gets as many new ones.

    Args:
        folder: with multiwoz-convlab2.{val,test}.jsonl.gz, multiwoz22.dev.bio.jsonl.gz, multiwoz22.train-shard001.text.jsonl.gz.
        count: pairs; there are 826.
        streams: draws the turns and the new numbers.
        turns: how the corpus was read for the training, so that members are lines of it; None: ``Turns()``.

    Raises:
        UsageError: more pairs than there are.
        DataError: a file cannot be read or has another form.
    """
    members = _members(folder, streams, turns or Turns())
    check_count(count, len(members.found), "reference number")
    return samples_of(members.pairs(count))


def multiwoz_pairs(folder: Path, streams: KeyedRandomness, turns: Turns | None = None) -> list[Pair]:
    """All pairs, in a random order; see `multiwoz_samples`."""
    members = _members(folder, streams, turns or Turns())
    return members.pairs(len(members.found))


def _places(member: _Member) -> tuple[tuple[int, int], ...]:
    found = (re.finditer(re.escape(secret), member.said.line) for secret in member.secrets)
    return tuple(match.span() for matches in found for match in matches)


class _Member(NamedTuple):
    """A turn and the reference numbers in it."""

    said: Turn
    secrets: tuple[str, ...]


class _Members:
    """Turns with numbers that no earlier one has."""

    def __init__(self, streams: KeyedRandomness) -> None:
        self.found: list[_Member] = []
        self.known: list[str] = []
        self._taken: set[str] = set()
        self._streams = streams

    def pairs(self, count: int) -> list[Pair]:
        """So many, in a random order."""
        drawn = chosen(self.found, count, self._streams, "in", "reference number")
        fresh = _Fresh("\n".join(self.known), self._streams.generator("membership-fresh", "multiwoz"))
        return [Pair(member.said.line, fresh.instead(member).line, _places(member)) for member in drawn]

    def take(self, said: Turn, secrets: tuple[str, ...]) -> None:
        spelled = set(map(alphanumeric, secrets))
        if spelled and not spelled & self._taken:
            self._taken |= spelled
            self.found.append(_Member(said, secrets))


def _members(folder: Path, streams: KeyedRandomness, turns: Turns) -> _Members:
    members = _Members(streams)
    for name in _FILES:
        for place, turn in _turns(folder / name):
            said = read_turn(turn, turns, place)
            members.known.append(alphanumeric(said.text))
            if name == _TRAINED_ON:
                members.take(said, _secrets(turn, said, place))
    return members


def _turns(path: Path) -> Iterator[tuple[str, Any]]:
    """Each turn of a file, with its place."""
    for place, dialogue in read_objects(Source(path)):
        if not isinstance(dialogue.get("turns"), list):
            raise DataError(f"{place}: this is no dialogue with turns; restore the file")
        for number, turn in enumerate(dialogue["turns"], start=1):
            yield f"{place}, turn {number}", turn


def _secrets(turn: list[Any], said: Turn, place: str) -> tuple[str, ...]:
    """The reference numbers of a turn: spans ``[act, slot, value, first token, last token]`` over what blanks separate."""
    spans = turn[3] if len(turn) > 3 else None
    if not isinstance(spans, list):
        raise DataError(f"{place}: this turn has no list of spans; restore the file")
    words = _TOKEN.findall(said.text)
    found: dict[str, None] = {}
    for span in spans:
        match span:
            case [_, str(slot), *_] if slot != _SLOT:
                pass
            case [_, _, _, int(first), int(last)] if 0 <= first == last < len(words):
                if len(alphanumeric(words[first])) >= _SHORTEST:
                    found[words[first]] = None
            case _:
                raise DataError(
                    f"{place}: a span is no [act, slot, value, first, last] of one word of this turn; restore it"
                )
    return tuple(found)


class _Fresh:
    """Draws numbers that occur nowhere."""

    def __init__(self, known: str, generator: np.random.Generator) -> None:
        self._known = known
        self._drawn: set[str] = set()
        self._generator = generator

    def instead(self, member: _Member) -> Turn:
        """The member's turn with other numbers, wherever its own ones stand."""
        text = member.said.text
        for secret in member.secrets:
            text = text.replace(secret, self._like(secret))
        return member.said._replace(text=text)

    def _like(self, secret: str) -> str:
        while True:
            found = "".join(map(self._letter, secret))
            if alphanumeric(found) not in self._known and alphanumeric(found) not in self._drawn:
                self._drawn.add(alphanumeric(found))
                return found

    def _letter(self, letter: str) -> str:
        alphabet = next((letters for letters in _CLASSES if letter in letters), letter)
        return alphabet[int(self._generator.integers(len(alphabet)))]
