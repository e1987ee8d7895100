"""Exact deduplication: copies of a text become the single ``<MASK>`` token (Zhao et al. 2022, section 3.2, appendix A.6, item 4).

``KeepFirst`` reads the texts once and masks every copy but the first. ``MaskAll`` reads them twice and masks every copy of a
text that occurs at least twice. Both remember a keyed 128-bit digest of each text, never the text.

What a DP or confidentiality claim needs is the *stability*: how many outputs one input can change. It is derived in
docs/deduplication.md and is not 1.
"""

from __future__ import annotations

import dataclasses
import hashlib
import hmac
import json
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal, Self, get_args

from tacit.errors import DataError, UsageError
from tacit.files import write_atomically
from tacit.randomness import KeyedRandomness
from tacit.screening.memories import DIGEST_BYTES, ExactMemory, keyed_digest
from tacit.screening.normalise import normal_form
from tacit.screening.redact import MASK

__all__ = [
    "DeduplicateOptions",
    "DeduplicationReport",
    "KeepFirst",
    "MaskAll",
    "Mode",
    "Normalisation",
    "Stability",
    "check_choice",
    "normalised",
    "stability",
]

Mode = Literal["keep-first", "mask-all"]
Normalisation = Literal["none", "whitespace", "casefold"]

_MAC_BYTES = 32


# Options --------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class DeduplicateOptions:
    """What counts as a copy, and what happens to copies.

    Args:
        mode: ``keep-first`` or ``mask-all`` (two passes).
        normalisation: what is ignored in the comparison; see `normalised`. The text that is kept stays as it was.
    """

    mode: Mode = "keep-first"
    normalisation: Normalisation = "none"

    def __post_init__(self) -> None:
        check_choice("mode", self.mode, Mode)
        check_choice("normalisation", self.normalisation, Normalisation)


def check_choice(name: str, value: str, kind: Any) -> None:
    """Raise `UsageError` unless the value is one of the Literal's."""
    if value not in get_args(kind):
        raise UsageError(f"{name} is {value!r}; it must be one of {', '.join(get_args(kind))}")


def normalised(text: str, normalisation: Normalisation) -> str:
    """What is compared instead of the text.

    ``none``: the text. ``whitespace``: runs of white space are one space, none at the ends. ``casefold``: that, and Unicode's
    compatibility caseless matching (The Unicode Standard, D146): "ﬁ" is "fi", full-width digits are digits, and "10²" is "102".

    >>> normalised(" Hello,\\n WORLD ", "casefold")
    'hello, world'
    """
    if normalisation == "none":
        return text
    if normalisation == "casefold":
        text = text.lower() if text.isascii() else _caseless(text)
    return " ".join(text.split())


def _caseless(text: str) -> str:
    once = normal_form("NFKD", normal_form("NFD", text).casefold())
    return normal_form("NFKC", once.casefold())


# Stability ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Stability:
    """Outputs that one input can change at most; `stability` says which inputs and outputs.

    Fields:
        replaced: one input is replaced by another one.
        added: one input is added or removed; it counts, and so does each other output that it changes.
    """

    replaced: int
    added: int

    @property
    def add_or_remove_group(self) -> int:
        """Size of the group under add-or-remove that covers one added input: every changed output is one removed, one added."""
        return 2 * self.added - 1


def stability(options: DeduplicateOptions, *, texts_per_unit: int = 1, whole_units: bool = False) -> Stability:
    """The stability of deduplication alone, for any corpus (docs/deduplication.md has the proof).

    Args:
        options: how copies are treated.
        texts_per_unit: inputs and outputs are units (records, documents, users) of at most so many texts, each text
            deduplicated by itself.
        whole_units: training sees the outputs without their order, and a unit is one text (Poisson sampling of records).
    """
    if texts_per_unit < 1:
        raise UsageError(f"texts_per_unit is {texts_per_unit}; it must be at least 1")
    if whole_units and texts_per_unit > 1:
        raise UsageError("whole_units means that a unit is one text: texts_per_unit must be 1")
    if options.mode == "mask-all":
        return Stability(2 * texts_per_unit, 1 + texts_per_unit)
    if not whole_units:
        return Stability(1 + 2 * texts_per_unit, 1 + texts_per_unit)
    # As a bag, the outputs are the different texts and so many masks; with a normalisation, *which* copy is kept shows.
    return Stability(1, 1) if options.normalisation == "none" else Stability(2, 2)


# Marking --------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class DeduplicationReport:
    """What was done: ``texts`` were marked, of which ``duplicates`` are masked.

    The counts are functions of the private text; options and stability may be published.
    """

    options: DeduplicateOptions
    stability: Stability
    texts: int
    duplicates: int

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready values; what must stay private is under ``private``."""
        values = dataclasses.asdict(self)
        options, found = values.pop("options"), values.pop("stability")
        return {**options, "memory": "exact", "stability": found, "private": values}


class _Marking(ABC):
    """Digests, counts, and the state on disk; a subclass says which texts are masked."""

    mode: ClassVar[Mode]

    def __init__(self, options: DeduplicateOptions, streams: KeyedRandomness) -> None:
        if options.mode != self.mode:
            raise UsageError(f"{type(self).__name__} is for mode {self.mode}, not {options.mode}")
        self.options = options
        self._empty = hashlib.blake2b(key=streams.derive("deduplicate", "texts"), digest_size=DIGEST_BYTES)
        self._mac_key = streams.derive("deduplicate", "state")
        self._counts = {"texts": 0, "duplicates": 0}

    @abstractmethod
    def mark(self, text: str) -> bool:
        """Whether this text, the next of the corpus, is to be masked."""

    @abstractmethod
    def _memories(self) -> tuple[ExactMemory, ...]: ...

    def mask(self, texts: Iterable[str]) -> Iterator[str]:
        """Each text in turn, or ``<MASK>``."""
        for text in texts:
            yield MASK if self.mark(text) else text

    def report(self) -> DeduplicationReport:
        """What was done so far."""
        return DeduplicationReport(
            self.options, stability(self.options), self._counts["texts"], self._counts["duplicates"]
        )

    def save(self, path: Path) -> None:
        """Write the state atomically, mode 0600. It is private: with the key it tells whether a text was in the corpus."""
        contents = [memory.dump() for memory in self._memories()]
        sizes = [len(content) for content in contents]
        head = {"options": dataclasses.asdict(self.options), "counts": self._counts, "sizes": sizes}
        line = json.dumps(head, sort_keys=True).encode() + b"\n"

        def write(partial: Path) -> None:
            partial.touch(mode=0o600)
            partial.chmod(0o600)  # also when an interrupted save left the file with other permissions
            with partial.open("wb") as file:
                for piece in [line, *contents, self._mac([line, *contents])]:
                    file.write(piece)

        write_atomically(path, write)

    @classmethod
    def load(cls, path: Path, options: DeduplicateOptions, streams: KeyedRandomness) -> Self:
        """Go on from a saved state, bit for bit.

        Raises:
            DataError: the file is missing or damaged, or belongs to another key or to other options.
        """
        found = cls(options, streams)
        try:
            content = path.read_bytes()
        except OSError as error:
            raise DataError(f"{path}: the deduplication state cannot be read; start the screening again") from error
        body, mac = memoryview(content)[:-_MAC_BYTES], content[-_MAC_BYTES:]
        if not hmac.compare_digest(mac, found._mac([body])):
            raise DataError(f"{path}: the deduplication state is damaged, or of another key; start the screening again")
        at = content.index(b"\n") + 1
        head = json.loads(content[:at])
        if head["options"] != dataclasses.asdict(options):
            raise DataError(f"{path}: the deduplication state is one of other options; use those, or start again")
        found._counts = head["counts"]
        for memory, size in zip(found._memories(), head["sizes"], strict=True):
            memory.restore(body[at : at + size])
            at += size
        return found

    def _mac(self, pieces: Iterable[bytes | bytearray | memoryview]) -> bytes:
        mac = hashlib.blake2b(key=self._mac_key, digest_size=_MAC_BYTES)
        for piece in pieces:
            mac.update(piece)
        return mac.digest()

    def digest(self, text: str) -> bytes:
        """Keyed, of what is compared: equal for copies."""
        # Lone surrogates are legal in JSON; an encoding error would hold the text.
        return keyed_digest(self._empty, normalised(text, self.options.normalisation).encode("utf-8", "surrogatepass"))


class KeepFirst(_Marking):
    """Masks every text that came before. ``streams`` are those of the run's key; addresses ``("deduplicate", ...)``."""

    mode = "keep-first"

    def __init__(self, options: DeduplicateOptions, streams: KeyedRandomness) -> None:
        super().__init__(options, streams)
        self._memory = ExactMemory()

    def mark(self, text: str) -> bool:
        """Whether an equal text was marked before."""
        duplicate = self._memory.add(self.digest(text))
        self._counts["texts"] += 1
        self._counts["duplicates"] += duplicate
        return duplicate

    def _memories(self) -> tuple[ExactMemory, ...]:
        return (self._memory,)


class MaskAll(_Marking):
    """Masks every copy of a text that occurs at least twice: `count` all texts, then `mark` them all."""

    mode = "mask-all"

    def __init__(self, options: DeduplicateOptions, streams: KeyedRandomness) -> None:
        super().__init__(options, streams)
        self._counts["counted"] = 0
        self._seen, self._repeated = ExactMemory(), ExactMemory()

    def count(self, text: str) -> None:
        """First pass."""
        if self._counts["texts"]:
            raise ValueError("all texts are counted before the first is marked")
        digest = self.digest(text)
        self._counts["counted"] += 1
        if self._seen.add(digest):
            self._repeated.add(digest)

    def mark(self, text: str) -> bool:
        """Second pass: whether the text occurs at least twice.

        Raises:
            DataError: the text was not counted.
        """
        digest = self.digest(text)
        if digest not in self._seen or self._counts["texts"] >= self._counts["counted"]:
            raise DataError("the corpus changed between the two passes of deduplication; start the screening again")
        duplicate = digest in self._repeated
        self._counts["texts"] += 1
        self._counts["duplicates"] += duplicate
        return duplicate

    def _memories(self) -> tuple[ExactMemory, ...]:
        return self._seen, self._repeated
