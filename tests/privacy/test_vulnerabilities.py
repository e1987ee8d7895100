"""Which certificates the entries of docs/known-vulnerabilities.md are about."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from tacit.privacy.vulnerabilities import VULNERABILITIES, concerning

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "known-vulnerabilities.md").read_text(encoding="utf-8")

GAUSSIAN = {"kind": "poisson-gaussian", "sampling_probability": 0.1, "noise_multiplier": 1.0}
BANDED = {**GAUSSIAN, "kind": "banded-poisson-gaussian", "thresholds": [0.5], "weights": [1.0, 0.5]}
WORDS = {"kind": "thresholded-histogram", "noise_stddev": 30.0, "threshold": 185, "max_words": 64}
EVERY_RUN = {
    "TACIT-2",
    "TACIT-5",
    "TACIT-7",
    "TACIT-12",
    "TACIT-16",
    "TACIT-18",
    "TACIT-19",
    "TACIT-20",
    "TACIT-22",
    "TACIT-26",
    "TACIT-27",
    "TACIT-45",
    "TACIT-46",
    "TACIT-47",
    "TACIT-48",
    "TACIT-49",
    "TACIT-50",
    "TACIT-51",
    "TACIT-52",
    "TACIT-55",
    "TACIT-57",
    "TACIT-59",
}


def certificate(*events: dict[str, Any], version: int = 1, **beside: Any) -> dict[str, Any]:
    return {"version": version, "spends": [{"event": event} for event in events], **beside}


def codes(certificate: dict[str, Any], config: dict[str, Any]) -> set[str]:
    return {entry.code for entry in concerning(certificate, config)}


TOGETHER = {"with_dp": True, "same_people": True, "pretraining": {"unit": "record"}}
PLAIN: dict[str, Any] = {"model": {"kind": "bert"}, "vocabulary": {"method": "public"}, "audit": None}


@pytest.mark.parametrize(
    ("found", "config", "expected"),
    [
        (certificate(GAUSSIAN), PLAIN, set()),
        (
            certificate(GAUSSIAN),
            {**PLAIN, "model": {"folder": "somewhere"}},
            {
                "TACIT-1",
                "TACIT-10",
                "TACIT-23",
                "TACIT-24",
                "TACIT-25",
                "TACIT-60",
                "TACIT-32",
                "TACIT-36",
                "TACIT-54",
                "TACIT-38",
                "TACIT-40",
                "TACIT-44",
            },
        ),
        (
            certificate(GAUSSIAN),
            {**PLAIN, "vocabulary": {"path": "somewhere"}},
            {"TACIT-1", "TACIT-23", "TACIT-24", "TACIT-25", "TACIT-60"},
        ),
        (certificate(BANDED, WORDS), PLAIN, {"TACIT-3", "TACIT-17", "TACIT-58"}),
        (certificate(BANDED), PLAIN, {"TACIT-17", "TACIT-58"}),
        (certificate({**BANDED, "weights": [0.0, 1.0]}), PLAIN, {"TACIT-17"}),
        (certificate(GAUSSIAN), {**PLAIN, "audit": {"membership": {"pairs": 9}}}, {"TACIT-4"}),
        (certificate(GAUSSIAN, confidentiality={}), PLAIN, {"TACIT-8"}),
        (certificate(GAUSSIAN, confidentiality={"bayesian": {}}), PLAIN, {"TACIT-8", "TACIT-11"}),
        (
            certificate(GAUSSIAN, confidentiality={}),
            {**PLAIN, "screening": {"group": {"most": 3}}},
            {"TACIT-6", "TACIT-8"},
        ),
        (certificate(GAUSSIAN, fine_tuning=TOGETHER), PLAIN, {"TACIT-9", "TACIT-28", "TACIT-35"}),
        (certificate(GAUSSIAN, fine_tuning={**TOGETHER, "same_people": False}), PLAIN, {"TACIT-28", "TACIT-35"}),
        (certificate(GAUSSIAN, fine_tuning={**TOGETHER, "with_dp": False}), PLAIN, set()),
        (certificate(GAUSSIAN), {**PLAIN, "model": {"kind": "lstm"}, "audit": {"canaries": 1}}, {"TACIT-10"}),
        (certificate(GAUSSIAN), {**PLAIN, "model": {"kind": "lstm"}}, set()),
        (certificate(GAUSSIAN), {**PLAIN, "audit": {"canaries": 1}}, set()),
        (certificate(GAUSSIAN), {**PLAIN, "vocabulary": {"method": "given"}}, {"TACIT-10", "TACIT-40", "TACIT-44"}),
        (
            certificate(GAUSSIAN),
            {**PLAIN, "vocabulary": {"method": "given"}, "private": {"format": "chat"}},
            {"TACIT-10", "TACIT-39", "TACIT-40", "TACIT-42", "TACIT-44"},
        ),
        (
            certificate(GAUSSIAN),
            {**PLAIN, "vocabulary": {"method": "given"}, "marking": {"data_point": "record"}},
            {"TACIT-10", "TACIT-21", "TACIT-33", "TACIT-37", "TACIT-40", "TACIT-41", "TACIT-44"},
        ),
        (
            certificate(GAUSSIAN),
            {**PLAIN, "model": {"folder": "model"}, "compute": {"device": "cuda"}},
            {
                "TACIT-1",
                "TACIT-10",
                "TACIT-23",
                "TACIT-24",
                "TACIT-25",
                "TACIT-60",
                "TACIT-32",
                "TACIT-34",
                "TACIT-36",
                "TACIT-54",
                "TACIT-38",
                "TACIT-40",
                "TACIT-44",
                "TACIT-53",
                "TACIT-56",
            },
        ),
        (
            certificate(GAUSSIAN),
            {**PLAIN, "model": {"kind": "lstm"}, "compute": {"device": "cuda"}},
            {"TACIT-53", "TACIT-56"},
        ),
        (certificate(GAUSSIAN), {**PLAIN, "compute": {"device": "cuda"}}, {"TACIT-56"}),
        (
            certificate(GAUSSIAN),
            {**PLAIN, "marking": {"balanced": "mine.yaml"}},
            {"TACIT-13", "TACIT-15", "TACIT-21", "TACIT-37", "TACIT-43", "TACIT-44"},
        ),
        (certificate(GAUSSIAN), {**PLAIN, "compute": {"precision": "bf16"}}, {"TACIT-29", "TACIT-30"}),
        (certificate(GAUSSIAN), {**PLAIN, "compute": {"precision": "float32"}}, set()),
        (
            certificate(GAUSSIAN),
            {**PLAIN, "marking": {"data_point": "line"}},
            {"TACIT-21", "TACIT-31", "TACIT-37"},
        ),
        (certificate(GAUSSIAN), {**PLAIN, "audit": {"control": True}}, {"TACIT-14"}),
        (certificate(GAUSSIAN), {**PLAIN, "audit": {"control": False}}, set()),
        (
            certificate(GAUSSIAN),
            {},
            {
                "TACIT-1",
                "TACIT-4",
                "TACIT-10",
                "TACIT-13",
                "TACIT-14",
                "TACIT-15",
                "TACIT-21",
                "TACIT-23",
                "TACIT-24",
                "TACIT-25",
                "TACIT-29",
                "TACIT-30",
                "TACIT-31",
                "TACIT-32",
                "TACIT-33",
                "TACIT-34",
                "TACIT-36",
                "TACIT-54",
                "TACIT-37",
                "TACIT-38",
                "TACIT-39",
                "TACIT-40",
                "TACIT-41",
                "TACIT-42",
                "TACIT-43",
                "TACIT-44",
                "TACIT-53",
                "TACIT-56",
                "TACIT-60",
            },
        ),  # without the configuration nobody can rule them out
    ],
)
def test_what_an_earlier_certificate_is_told(found: dict[str, Any], config: dict[str, Any], expected: set[str]) -> None:
    assert codes(found, config) == expected | EVERY_RUN


def test_a_certificate_of_this_version_is_told_nothing() -> None:
    assert codes(certificate(BANDED, WORDS, version=2, confidentiality={}), {}) == set()


def test_the_page_has_every_entry_with_its_title_and_a_test_that_is_there() -> None:
    for entry in VULNERABILITIES:
        assert f"[{entry.code}](#{entry.code.lower()})" in PAGE
        assert entry.title in PAGE
        section = PAGE.split(f"## {entry.code}\n")[1].split("\n## ")[0]
        said = " ".join(section.split())
        assert all(f"**{word}" in said for word in ("Effect.**", "Concerned if**", "Fix.**")), entry.code
        tests = re.findall(r"`(test_\w+\.py)`", section)
        assert tests, entry.code
        assert all((ROOT / "tests" / "attacks_on_certificates" / name).is_file() for name in tests)
    assert PAGE.count("\n## TACIT-") == len(VULNERABILITIES)
