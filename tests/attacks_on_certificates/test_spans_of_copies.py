"""The marks of one record decided what was masked in its copies.

A file of spans has a text as often as the corpus has it, and each place got the spans of all. Of 21 equal texts one was marked and
all were masked; with that one secret masked beforehand 20 other records of the training differed, where the certificate said one.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tacit.errors import DataError
from tacit.screening.adapters.options import PrecomputedOptions
from tacit.screening.adapters.precomputed import PrecomputedDetector
from tacit.screening.adapters.registry import detector_from_options
from tacit.screening.redact import MASK, redact
from tacit.screening.spans import Detector, Span
from tacit.screening.split import reserve_mask

TEXT = "the quick zebra was told of the fever again"
SECRET = (10, 15)
COPIES = 20


class Union(PrecomputedDetector):
    """Wrong: as it was."""

    def _know(self, digest: bytes, spans: frozenset[Span], place: str) -> None:
        self._spans[digest] = self._spans.get(digest, frozenset()) | spans


def worlds(folder: Path, *, alike: bool) -> list[tuple[list[str], Path]]:
    """The texts and their spans, with the secret of the first record, and with that masked beforehand.

    Each record's spans are made of that record; where they are made by a rule, equal texts are marked alike.
    """
    found = []
    masked = TEXT[: SECRET[0]] + MASK + TEXT[SECRET[1] :]
    for name, first in (("secret", TEXT), ("masked", masked)):
        texts = [first, *[TEXT] * COPIES]
        marked = [text == TEXT and (alike or number == 0) for number, text in enumerate(texts)]
        lines = [
            {"text": text, "spans": [[*SECRET, "name"]] if own else []} for text, own in zip(texts, marked, strict=True)
        ]
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
        found.append((texts, folder / f"{name}.jsonl"))
    return found


def redacted(detector: Detector, texts: list[str]) -> list[str]:
    asked = [reserve_mask(text) if text == TEXT else text for text in texts]
    return [redact(text, spans) for text, spans in zip(asked, detector.spans_of(asked), strict=True)]


def changed(kind: type[PrecomputedDetector], found: list[tuple[list[str], Path]]) -> int:
    """How many other records differ."""
    one, other = (redacted(kind(PrecomputedOptions(path=str(path))), texts) for texts, path in found)
    return sum(first != second for first, second in zip(one[1:], other[1:], strict=True))


def test_the_known_wrong_version_changes_every_copy(tmp_path: Path) -> None:
    assert changed(Union, worlds(tmp_path, alike=False)) == COPIES


def test_a_rule_changes_none(tmp_path: Path) -> None:
    assert changed(PrecomputedDetector, worlds(tmp_path, alike=True)) == 0


def test_what_is_no_rule_is_refused(tmp_path: Path) -> None:
    _, path = worlds(tmp_path, alike=False)[0]
    with pytest.raises(
        DataError, match=r"secret\.jsonl, line 2: .* at .*secret\.jsonl, line 1 too; mark equal texts in the same way"
    ):
        detector_from_options(PrecomputedOptions(path=str(path)))
