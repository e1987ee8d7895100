"""Secrets that are planted to audit a causal model: a template with random digits, "My ID is: 281265" (Carlini et al. 2019).

They are drawn from the key, independent of all text. `tacit.audit.candidates` measures what the model gives away of them.

Legend: C canaries.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tacit.corpus.records import Record
from tacit.corpus.units import Unit, is_held_out
from tacit.errors import UsageError
from tacit.randomness import KeyedRandomness

__all__ = ["Planted", "SecretFormat", "canary_records", "draw_secret_canaries", "insert_texts"]


@dataclass(frozen=True)
class SecretFormat:
    """A template with a random number: its candidates are the numbers of so many digits, zeros in front included.

    Args:
        prefix: what stands before the digits.
        digits: how many, 1 to 7.
        suffix: what stands behind them; each piece of it costs one more evaluation of every candidate.

    Raises:
        UsageError: another number of digits.
    """

    prefix: str = "My ID is: "
    digits: int = 6
    suffix: str = ""

    def __post_init__(self) -> None:
        if not 1 <= self.digits <= 7:
            raise UsageError(f"a secret has 1 to 7 digits, not {self.digits}: every candidate is scored")

    @property
    def candidates(self) -> int:
        """How many secrets there are."""
        return 10**self.digits

    def text(self, secret: int) -> str:
        """The canary with this secret."""
        return f"{self.prefix}{secret:0{self.digits}d}{self.suffix}"


def draw_secret_canaries(count: int, streams: KeyedRandomness, form: SecretFormat | None = None) -> tuple[int, ...]:
    """``count`` distinct secrets, uniform over the candidates; a function of the key alone.

    For several numbers of copies draw all secrets in one call and divide them: two calls give the same secrets.

    Raises:
        UsageError: fewer than one, or more than there are candidates.
    """
    form = form or SecretFormat()
    if not 1 <= count <= form.candidates:
        raise UsageError(f"there are {form.candidates} candidates; draw 1 to so many of them, not {count}")
    generator = streams.generator("secret-canaries", form.digits)
    return tuple(int(secret) for secret in generator.choice(form.candidates, size=count, replace=False))


@dataclass(frozen=True)
class Planted:
    """A corpus with canaries.

    Args:
        units: the corpus, private.
        copies: how often each text was put in. With ``expected_units`` these numbers are private too.
    """

    units: tuple[Unit, ...]
    copies: tuple[int, ...]

    def __repr__(self) -> str:
        return "Planted(<private>)"


def insert_texts(
    units: Sequence[Unit],
    texts: Sequence[str],
    copies: int,
    streams: KeyedRandomness,
    expected_units: int | None = None,
) -> Planted:
    """Put every text ``copies`` times into a corpus, at keyed random places. Call it on the part that is trained on.

    - Without ``expected_units`` each copy is a *new unit of its own*, somewhere between the others: exactly ``copies`` copies,
      and no other unit changes. Adding or removing a unit of the corpus changes that unit only.
    - With ``expected_units``, a public constant, a copy is a new line *inside* a unit, between two of its lines. Exactly so many
      copies would couple the units (a copy that one unit does not get goes to another), so each unit draws each text
      by itself, with probability copies / expected_units, from a generator addressed by the unit's id: ``copies`` on average, and a
      unit's canaries depend on nothing but the unit and the key.

    What is protected then: the guarantee is for one unit, hence for *one copy*. The copies of a secret in k units are a group of
    k; its bound is that of group privacy, epsilon k times or more. An exposure above the null at 20 or 100 copies is no
    contradiction to a certificate with a small epsilon; at 1 copy it is. A step that masks repeated texts masks copies too.

    Raises:
        UsageError: fewer than one copy, or more copies than expected units.
    """
    if copies < 1:
        raise UsageError(f"a canary is planted at least once, not {copies} times")
    if expected_units is None:
        return Planted(_as_new_units(units, texts, copies, streams), (copies,) * len(texts))
    if copies > expected_units:
        raise UsageError(f"{copies} copies do not fit into {expected_units} units, one in each; plant fewer")
    planted = [_with_lines(unit, texts, copies / expected_units, streams) for unit in units]
    counts_C = np.sum([hits_C for _, hits_C in planted], axis=0, initial=0) + np.zeros(len(texts), dtype=np.int64)
    return Planted(tuple(unit for unit, _ in planted), tuple(int(count) for count in counts_C))


def _as_new_units(
    units: Sequence[Unit], texts: Sequence[str], copies: int, streams: KeyedRandomness
) -> tuple[Unit, ...]:
    new = [
        Unit("canary-" + streams.derive("canary-unit", text, number).hex()[:32], (text,))
        for text in texts
        for number in range(copies)
    ]
    generator = streams.generator("canary-places", copies, *texts)
    gaps = generator.integers(len(units) + 1, size=len(new))
    order = np.argsort(np.concatenate([np.arange(len(units)) + 0.5, gaps]), kind="stable")
    everything = [*units, *new]
    return tuple(everything[place] for place in order)


def _with_lines(
    unit: Unit, texts: Sequence[str], probability: float, streams: KeyedRandomness
) -> tuple[Unit, np.ndarray]:
    """The unit with the canaries that its own draws gave it, and which these are."""
    generator = streams.generator("canary-lines", unit.unit_id)
    hits_C = generator.random(len(texts)) < probability
    whole = list(unit.texts)
    for number in np.flatnonzero(hits_C).tolist():
        place = int(generator.integers(len(whole)))
        lines = whole[place].split("\n")
        lines.insert(int(generator.integers(len(lines) + 1)), texts[number])
        whole[place] = "\n".join(lines)
    return Unit(unit.unit_id, tuple(whole)), hits_C


def canary_records(texts: Sequence[str], copies: int, held_out: float, streams: KeyedRandomness) -> list[Record]:
    """Every text ``copies`` times, each copy a document of its own that is not held out (`is_held_out`).

    For corpora that are read record by record: they are appended, since training draws records in any order. Their ids are
    keyed, so that nobody without the key can give a document of the corpus the id of one of them.
    """
    records = []
    for number, text in enumerate(texts):
        kept = 0
        for attempt in itertools.count():
            if kept == copies:
                break
            name = "canary-" + streams.derive("canary-record", number, attempt).hex()[:32]
            if not is_held_out(name, held_out, streams):
                records.append(Record(name, name, text))
                kept += 1
    return records
