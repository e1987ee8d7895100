"""Presidio without a network: what it finds is what its own engine finds, and it asks nobody."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import spacy
from presidio_analyzer import Pattern, PatternRecognizer, pattern_recognizer
from presidio_analyzer.predefined_recognizers import EmailRecognizer
from tldextract import TLDExtract
from tldextract import tldextract as tldextract_module

from tacit.errors import DataError, UsageError
from tacit.screening.adapters.options import PresidioOptions
from tacit.screening.adapters.presidio import PresidioDetector
from tacit.screening.adapters.registry import detector_from_options
from tacit.screening.spans import Detector, Span, unreadable


@pytest.fixture(scope="module")
def reader() -> PresidioDetector:
    made = detector_from_options(PresidioOptions())
    assert isinstance(made, PresidioDetector)
    return made


CASES = {  # text with one secret between bars, and its entity
    "card": ("my card |4111 1111 1111 1111| ok", "CREDIT_CARD"),
    "mail": ("write to |bob.smith@example.com| now", "EMAIL_ADDRESS"),
    "mail inside": ("write to |bob.smith@mail.corp| now", "EMAIL_ADDRESS"),
    "phone": ("call |(415) 555-2671| now", "PHONE_NUMBER"),
    "iban": ("pay |DE89370400440532013000| now", "IBAN_CODE"),
    "ip": ("host |192.168.17.4| now", "IP_ADDRESS"),
    "ssn": ("ssn |536-22-8726| now", "US_SSN"),
    "url": ("see |https://example.org/a| now", "URL"),
}
AROUND = ["", "😀😀 ", "e\u0301é👩\u200d👧 𝔘 "]


def case(kind: str, before: str) -> tuple[str, int, int, str]:
    text, label = CASES[kind]
    first, secret, last = text.split("|")
    start = len(before) + len(first)
    return f"{before}{first}{secret}{last}", start, start + len(secret), label


def finds(reader: Detector, before: str) -> bool:
    """Every case is found at its code points."""
    wanted = [case(kind, before) for kind in CASES]
    found = reader.spans_of([text for text, *_ in wanted])
    return all(
        (start, end, label) in {(span.start, span.end, span.label) for span in own}
        for (_, start, end, label), own in zip(wanted, found, strict=True)
    )


class Bytes(PresidioDetector):
    """Wrong: offsets of the encoded text."""

    def spans_of(self, texts: Sequence[str]) -> list[list[Span]]:
        return [
            [span._replace(start=len(text[: span.start].encode()), end=len(text[: span.end].encode())) for span in own]
            for text, own in zip(texts, super().spans_of(texts), strict=True)
        ]


@pytest.mark.parametrize("before", AROUND)
def test_code_points(reader: PresidioDetector, before: str) -> None:
    assert finds(reader, before)


def test_bytes_are_caught() -> None:
    wrong = Bytes(PresidioOptions())
    assert [finds(wrong, before) for before in AROUND] == [True, False, False]


def test_one_by_one_is_the_same(reader: PresidioDetector) -> None:
    texts = [case(kind, before)[0] for kind in CASES for before in AROUND]
    assert [reader.spans(text) for text in texts] == reader.spans_of(texts)
    assert reader.spans("") == reader.spans_of([" "])[0] == []


# No network


def test_it_asks_nobody(network_calls: list[object]) -> None:
    """Made and used, for texts with everything that its recognisers look at."""
    made = detector_from_options(PresidioOptions())
    assert finds(made, "")
    made.spans("bob@somewhere.co.uk, x@y.museum, http://z.example, 1.2.3.4, +44 20 7946 0958, 00:1b:44:11:3a:b7")
    assert network_calls == []


def test_asking_is_caught(network_calls: list[object], monkeypatch: pytest.MonkeyPatch) -> None:
    """The known-wrong version: Presidio's own recogniser of e-mails, on a machine that has read no list of domains yet."""
    monkeypatch.setattr(tldextract_module, "TLD_EXTRACTOR", TLDExtract(cache_dir=None))
    EmailRecognizer().analyze("bob@example.com", ["EMAIL_ADDRESS"])
    assert network_calls != []


def test_a_pipeline_is_not_downloaded(network_calls: list[object]) -> None:
    with pytest.raises(UsageError, match="detector presidio: pipeline: en_core_web_lg is no spaCy pipeline"):
        detector_from_options(PresidioOptions(pipeline="en_core_web_lg"))
    assert network_calls == []


# Scores


def test_words_around_a_number_count(reader: PresidioDetector) -> None:
    """Presidio's context words work on a pipeline without lemmas: the engine's own empty lemmas would match nothing."""
    scores = {
        text: max(span.score for span in reader.spans(text) if span.label == "PHONE_NUMBER")
        for text in ("we saw 415-555-2671 there", "my telephone 415-555-2671 there")
    }
    assert list(scores.values()) == [pytest.approx(0.4), pytest.approx(0.75)]


def test_entities(reader: PresidioDetector) -> None:
    made = detector_from_options(PresidioOptions(entities=("EMAIL_ADDRESS",)))
    assert {span.label for span in made.spans("bob@example.com 4111 1111 1111 1111")} == {"EMAIL_ADDRESS"}
    with pytest.raises(UsageError, match=r"^detector presidio: entities: there is no SHOE_SIZE; there are .*US_SSN"):
        detector_from_options(PresidioOptions(entities=("URL", "SHOE_SIZE")))
    with pytest.raises(UsageError, match="there is no PERSON"):  # needs a pipeline
        detector_from_options(PresidioOptions(entities=("PERSON",)))


def test_names_of_a_pipeline(tmp_path: Path, reader: PresidioDetector) -> None:
    """Presidio's word for the ones that it knows; the others, which Presidio itself leaves out, keep their own."""
    pipeline = spacy.blank("en")
    rules = [
        {"label": "GPE", "pattern": "Oslo"},
        {"label": "FAC", "pattern": "Pier"},
        {"label": "PERSON", "pattern": "Ann"},
    ]
    pipeline.add_pipe("entity_ruler").add_patterns(rules)
    pipeline.to_disk(tmp_path / "rules")
    made = detector_from_options(PresidioOptions(pipeline=str(tmp_path / "rules")))
    assert [(span.start, span.label) for span in made.spans("Ann Pier Oslo")] == [
        (0, "PERSON"),
        (4, "FAC"),
        (9, "LOCATION"),
    ]
    assert finds(made, "")
    assert reader.spans("Ann Pier Oslo") == []


# What Presidio does quietly


class Slow(PresidioDetector):
    """With a pattern whose time grows without bound."""

    def __init__(self) -> None:
        super().__init__(PresidioOptions())
        self._analyzer.registry.recognizers.append(SLOW)


SLOW = PatternRecognizer("SLOW", patterns=[Pattern("slow", r"(?:a?b?a?)*c", 1.0)])
LONG = "ab" * 2000 + "zqsecret"


def test_a_text_with_a_pattern_that_is_skipped_is_private_as_a_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    slow = Slow()
    assert [span.label for span in slow.spans("abc")] == ["SLOW"]
    monkeypatch.setattr(pattern_recognizer, "REGEX_TIMEOUT_SECONDS", 0.2)
    assert slow.spans_of(["abc", LONG]) == [slow.spans("abc"), unreadable(LONG, "presidio")]


def test_presidio_itself_skips_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """The known-wrong version: no error and no span, though the text has one after the slow part."""
    monkeypatch.setattr(pattern_recognizer, "REGEX_TIMEOUT_SECONDS", 0.2)
    assert SLOW.analyze(f"{LONG} abc", ["SLOW"]) == []


@pytest.fixture
def log() -> Iterator[list[str]]:
    lines: list[str] = []

    class Keeper(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            lines.append(record.getMessage())

    root, keeper, level = logging.getLogger(), Keeper(), logging.getLogger().level
    root.addHandler(keeper)
    root.setLevel(logging.DEBUG)
    yield lines
    root.removeHandler(keeper)
    root.setLevel(level)


def test_no_text_is_logged(log: list[str], reader: PresidioDetector) -> None:
    """Presidio's debug log has the words around what it finds."""
    text = "zqsecret phone 415-555-2671 zqsecret"
    reader.spans(text)
    assert not [line for line in log if "zqsecret" in line or "415" in line]
    logger = logging.getLogger("presidio-analyzer")
    filters, logger.filters = logger.filters, []
    try:
        reader.spans(text)
    finally:
        logger.filters = filters
    assert [line for line in log if "zqsecret" in line]  # the known-wrong version


def test_an_error_that_presidio_logs_is_not_printed(log: list[str], reader: PresidioDetector) -> None:
    """At a letter whose capital is no number (KELVIN SIGN) it logs the whole match as an error. 28th attack."""
    text = "GB82 WEST 1234 5698 7654 3\u212a"
    reader.spans(text)
    assert not [line for line in log if "WEST" in line]


def test_an_error_of_presidio_holds_no_text(reader: PresidioDetector, monkeypatch: pytest.MonkeyPatch) -> None:
    analyze = reader._analyzer.analyze

    def fails(text: str, *others: Any, **named: Any) -> Any:
        if "zqsecret" in text:
            raise ValueError("Did not find word 'zqsecret'")
        return analyze(text, *others, **named)

    monkeypatch.setattr(reader._analyzer, "analyze", fails)
    assert reader.spans_of(["zqsecret", "quiet"]) == [unreadable("zqsecret", "presidio"), []]
    monkeypatch.setattr(reader._analyzer, "analyze", lambda *_, **__: fails("zqsecret"))
    with pytest.raises(DataError, match="detector presidio: it cannot read a harmless text") as caught:
        reader.spans("zqsecret")
    assert caught.value.__context__ is None


def test_texts_that_it_cannot_read(reader: PresidioDetector) -> None:
    assert reader.spans("\ud800") == unreadable("\ud800", "presidio")


@pytest.mark.slow
def test_no_text_is_too_long(reader: PresidioDetector) -> None:
    """spaCy's own limit, a million characters, would let one text decide whether there is a release."""
    assert reader._pipeline.max_length > 10**12
    assert [span.label for span in reader.spans("a " * 500_001 + "card 4111 1111 1111 1111")][:1]
