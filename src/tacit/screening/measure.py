"""Measuring policies on gold labels: recall, precision, and upper confidence bounds on what they miss.

A gold span is found when every character of it is marked, and caught without a trace when redaction gives the text that it
gives with the span masked beforehand (`tacit.screening.alike`). Precision is by characters. The bounds are Clopper and Pearson's,
one-sided: with probability ``confidence`` over the draw of the labels, the rate of misses is at most the bound. They hold for
secrets drawn like the labelled ones, and drawn independently (20 misses of 200 give gamma <= 0.142, none of 200 give delta_2 <=
0.0149).
"""

from __future__ import annotations

import codecs
import gzip
import json
import zlib
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice, pairwise
from pathlib import Path
from typing import Any

from tacit.errors import DataError
from tacit.screening.alike import caught_alike
from tacit.screening.policy import Policy
from tacit.screening.spans import merged
from tacit.screening.split import LITERAL_MASK, DataPoint, data_points
from tacit.screening.tokens import TokenPolicy

__all__ = ["CONFIDENCE", "GoldRecord", "Measured", "measure", "miss_rate_upper", "read_gold"]

CONFIDENCE = 0.95
_BATCH = 2000
_MOST_BYTES = 16_000_000

GoldSpan = tuple[int, int, str]


@dataclass(frozen=True, slots=True)
class GoldRecord:
    """A text and the secrets in it: (start, end, label) in code points, sorted, disjoint."""

    text: str
    spans: tuple[GoldSpan, ...]


@dataclass(frozen=True, slots=True)
class Measured:
    """How a policy did.

    Args:
        documents, documents_with_a_miss: records, and those with a gold span that is not wholly marked.
        spans, found: gold spans by label, and those found.
        characters, marked, both: all characters, the marked ones, and the marked ones inside gold spans.
        alike: gold spans that are caught without a trace, by label; None: not measured.
    """

    documents: int
    documents_with_a_miss: int
    spans: Counter[str]
    found: Counter[str]
    characters: int
    marked: int
    both: int
    alike: Counter[str] | None = None

    @property
    def misses(self) -> int:
        """Gold spans that were not found."""
        return self.spans.total() - self.found.total()

    def to_dict(self, confidence: float = CONFIDENCE) -> dict[str, Any]:
        """Ready for JSON. The bounds bound this policy's rate of misses: gamma in pi's place, delta_2 in pi_c's.

        ``precision`` is None where nothing was marked.

        ``not_alike`` and ``gamma_alike_upper`` count as missed what is not caught without a trace; None where that was not measured.
        """
        secrets = self.spans.total()
        bound = miss_rate_upper(self.misses, secrets, confidence)
        unlike = None if self.alike is None else secrets - self.alike.total()
        labels = sorted(self.spans.items())
        return {
            "recall": self.found.total() / secrets,
            "precision": self.both / self.marked if self.marked else None,
            "per_label": {label: self.found[label] / count for label, count in labels},
            "alike_per_label": None
            if self.alike is None
            else {label: self.alike[label] / count for label, count in labels},
            "spans_per_label": dict(labels),
            "documents": self.documents,
            "documents_with_a_miss": self.documents_with_a_miss / self.documents,
            "marked_share": self.marked / self.characters,
            "not_alike": None if unlike is None else unlike / secrets,
            "gamma_upper": bound,
            "gamma_alike_upper": None if unlike is None else miss_rate_upper(unlike, secrets, confidence),
            "delta2_upper": bound,
            "confidence": confidence,
        }


def miss_rate_upper(misses: int, labels: int, confidence: float = CONFIDENCE) -> float:
    """Clopper and Pearson's one-sided upper bound on a rate of which ``misses`` of ``labels`` were seen.

    >>> round(miss_rate_upper(20, 200), 3), round(miss_rate_upper(0, 200), 4)
    (0.142, 0.0149)
    """
    from tacit.privacy.confidentiality.misses import Labels

    return Labels(labels, misses).upper(confidence)


def measure(
    policies: Sequence[Policy | TokenPolicy], gold: Iterator[GoldRecord], *, alike: bool = False
) -> list[Measured]:
    """Each policy on all records, which stream.

    Args:
        alike: also count what is caught without a trace, which reads each record again for each of its secrets. A policy that knows
            given texts only (`Policy.reads_any_text`) is left out.

    Raises:
        DataError: there is no gold span at all.
    """
    totals = [_Totals(alike and policy.reads_any_text) for policy in policies]
    while batch := list(islice(gold, _BATCH)):
        texts = [record.text for record in batch]
        for total, policy in zip(totals, policies, strict=True):
            for record, spans in zip(batch, policy.spans_of(texts), strict=True):
                total.add(record, merged(spans))
            if total.alike is not None:
                places = [(record.text, [(start, end) for start, end, _ in record.spans]) for record in batch]
                for record, caught in zip(batch, caught_alike(policy, places), strict=True):
                    pairs = zip(record.spans, caught, strict=True)
                    total.alike.update(label for (_, _, label), is_alike in pairs if is_alike)
    return [total.measured() for total in totals]


class _Totals:
    """Running counts of one policy."""

    def __init__(self, with_alike: bool) -> None:
        self.alike: Counter[str] | None = Counter() if with_alike else None
        self._documents = self._with_a_miss = self._characters = self._marked = self._both = 0
        self._spans: Counter[str] = Counter()
        self._found: Counter[str] = Counter()

    def add(self, record: GoldRecord, runs: list[tuple[int, int]]) -> None:
        missed = False
        for start, end, label in record.spans:
            covered = sum(max(0, min(end, last) - max(start, first)) for first, last in runs)
            self._both += covered
            self._spans[label] += 1
            self._found[label] += covered == end - start
            missed |= covered < end - start
        self._documents += 1
        self._with_a_miss += missed
        self._characters += len(record.text)
        self._marked += sum(last - first for first, last in runs)

    def measured(self) -> Measured:
        if not self._spans:
            raise DataError("the gold file has no span, so there is nothing to measure; label some secrets first")
        return Measured(
            documents=self._documents,
            documents_with_a_miss=self._with_a_miss,
            spans=self._spans,
            found=self._found,
            characters=self._characters,
            marked=self._marked,
            both=self._both,
            alike=self.alike,
        )


# Reading gold


def read_gold(path: Path, data_point: DataPoint = "record") -> Iterator[GoldRecord]:
    """Records ``{"text": ..., "spans": [[start, end, label], ...]}``, one a line; ``.gz`` is read too.

    Args:
        data_point: what each record has to be one of, as screening cuts a corpus.

    Raises:
        DataError: the file cannot be read, a line is no such record, a span lies outside its text or overlaps another
            one, or a record would be cut. It names file and line, and never holds the text.
    """
    opener = gzip.open if path.suffix == ".gz" else open
    try:
        with opener(path, "rb") as file:
            for number, line in enumerate(iter(lambda: file.readline(_MOST_BYTES + 1), b""), start=1):
                place = f"{path}, line {number}"
                if len(line) > _MOST_BYTES:
                    raise DataError(f"{place}: the line is longer than {_MOST_BYTES} bytes; split the record")
                if line.strip():
                    record = _record(_decoded(line, place), place)
                    if LITERAL_MASK.search(record.text):  # a policy would be given other words than in a run
                        raise DataError(
                            f"{place}: the text holds <MASK>, which stands for what is taken out; write something else"
                        )
                    if record.text.strip() and data_points(record.text, data_point) != [record.text]:
                        raise DataError(
                            f"{place}: the text has line breaks, and each data point is one line; make each line a record of its own"
                        )
                    yield record
    except (OSError, EOFError, zlib.error):
        problem = f"{path}: the gold file cannot be read; check the path"
    else:
        return
    raise DataError(problem)


def _decoded(line: bytes, place: str) -> Any:
    """The line's JSON; its own errors quote the line, so they are dropped before ours is raised."""
    try:
        return json.loads(line.removeprefix(codecs.BOM_UTF8))
    except (ValueError, RecursionError):
        pass
    raise DataError(f"{place}: this is not a JSON object in UTF-8")


def _record(values: Any, place: str) -> GoldRecord:
    if (
        not isinstance(values, dict)
        or not isinstance(values.get("text"), str)
        or not isinstance(values.get("spans"), list)
    ):
        raise DataError(f'{place}: a gold record is {{"text": "...", "spans": [[start, end, "label"], ...]}}')
    text: str = values["text"]
    spans = sorted(
        _span(item, len(text), f"{place}, span {number}") for number, item in enumerate(values["spans"], start=1)
    )
    if any(second[0] < first[1] for first, second in pairwise(spans)):
        raise DataError(f"{place}: two spans overlap; a character belongs to one span at most")
    return GoldRecord(text, tuple(spans))


def _span(item: Any, length: int, place: str) -> GoldSpan:
    if not isinstance(item, list) or len(item) != 3:
        raise DataError(f"{place}: a span is [start, end, label]")
    start, end, label = item
    if type(start) is not int or type(end) is not int or not isinstance(label, str):
        raise DataError(f"{place}: a span is [start, end, label] with whole numbers and a word")
    if not 0 <= start < end <= length:
        raise DataError(f"{place}: it lies outside the text (0 to {length} code points), or is empty")
    return start, end, label
