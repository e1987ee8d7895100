"""Screening policies: which spans of a text are marked (pi and pi_c of Zhao et al. 2022), as data files.

Two are in the package. ``balanced`` (pi) marks what is to be masked. ``conservative`` (pi_c) marks anything not known to be
safe; a record that it marks is trained on with noise only. A user's file has the same fields and may add patterns, or is
of ``kind: tokens`` and has those of `tacit.screening.tokens`.
"""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Sequence
from importlib import resources
from pathlib import Path
from typing import Annotated, Any, Literal

import pydantic
import yaml
from pydantic import BaseModel, ConfigDict, Field

from tacit.errors import DataError, UsageError
from tacit.files import refuse_pipe
from tacit.option_errors import in_one_line
from tacit.screening.adapters.contents import contents_digest
from tacit.screening.adapters.registry import DETECTORS, DetectorOptions, detector_from_options
from tacit.screening.core import CoreDetector
from tacit.screening.missed import Spotter
from tacit.screening.safe import UnsafeSentences
from tacit.screening.spans import UNREADABLE, Detector, Span
from tacit.screening.tokens import TokenPolicy, TokenPolicyOptions
from tacit.screening.user_patterns import PatternDetector, UserPattern
from tacit.strict_yaml import parse_yaml

__all__ = [
    "POLICIES",
    "PatternOptions",
    "Policy",
    "PolicyOptions",
    "in_turn",
    "load_policy",
    "load_policy_options",
    "package_policy",
    "policy_from",
]

POLICIES = ("balanced", "conservative")

Score = Annotated[float, Field(ge=0, le=1)]


class _Options(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True, allow_inf_nan=False)


class PatternOptions(_Options):
    """A pattern of the user's own, in RE2's syntax."""

    label: Annotated[str, Field(min_length=1)]
    pattern: Annotated[str, Field(min_length=1)]
    score: Score = 1.0


class PolicyOptions(_Options):
    """A policy.

    Args:
        name: its name in reports.
        least_score: detections with this score or a higher one are marked.
        labels: only detections with these labels are marked; left out: all. What a detector could not read is marked in any case.
        mark: ``spans`` marks detections only; ``sentences`` also every sentence that is not known to be safe.
        safe_words: with ``mark: sentences``, how many of the most frequent ordinary words are safe.
        known_words: words that are ordinary here, such as names of products: no names, and safe.
        patterns: further things to find.
        detectors: detectors of other libraries, or spans computed elsewhere (docs/adapters.md).
    """

    name: Annotated[str, Field(min_length=1)]
    least_score: Score
    labels: tuple[str, ...] | None = None
    mark: Literal["spans", "sentences"] = "spans"
    safe_words: Annotated[int, Field(ge=0, le=2**40)] = 0
    known_words: tuple[str, ...] = ()
    patterns: tuple[PatternOptions, ...] = ()
    detectors: tuple[DetectorOptions, ...] = ()


class Policy:
    """Detectors and the choice among what they find.

    Args:
        options: the policy.

    Raises:
        DataError: a pattern is unsafe (`PatternDetector`).
    """

    def __init__(self, options: PolicyOptions) -> None:
        self.options = options
        self._core = CoreDetector(options.known_words)
        self._detectors: list[Detector] = []
        if options.patterns:
            patterns = [UserPattern(item.label, item.pattern, item.score) for item in options.patterns]
            self._detectors.append(PatternDetector(patterns))
        self._detectors += [detector_from_options(item) for item in options.detectors]
        self._unsafe = UnsafeSentences(options.safe_words, options.known_words) if options.mark == "sentences" else None

    @property
    def name(self) -> str:
        """The policy's name."""
        return self.options.name

    @functools.cached_property
    def digest(self) -> str:
        """SHA-256 of its options and of the models that they name: equal for policies that mark the same with the same detectors."""
        found = hashlib.sha256(self.options.model_dump_json().encode())
        for options in self.options.detectors:
            found.update(contents_digest(options).encode())
        return found.hexdigest()

    @property
    def reads_any_text(self) -> bool:
        """Whether it can be asked about a text that was changed: spans that were computed elsewhere are of given texts only."""
        return all(item.reads_any_text for item in self.options.detectors)

    def spans(self, text: str) -> list[Span]:
        """What the policy marks in one text, in code points; spans may overlap."""
        return self.spans_of([text])[0]

    def core_spans_of(self, texts: Sequence[str]) -> list[list[Span]]:
        """What the core detector finds in each text, marked or not: the same for all policies with the same ``known_words``."""
        return self._core.spans_of(texts)

    def spans_of(self, texts: Sequence[str], core: Sequence[Sequence[Span]] | None = None) -> list[list[Span]]:
        """What the policy marks in each text. Many short texts at once are faster than one by one.

        Args:
            texts: any.
            core: what `core_spans_of` gives for them, if it is known already.
        """
        found_by_core = self.core_spans_of(texts) if core is None else core
        marked = [list(filter(self._is_marked, found)) if found else [] for found in found_by_core]
        for detector in self._detectors:
            for own, found in zip(marked, detector.spans_of(texts), strict=True):
                own += filter(self._is_marked, found)
        if self._unsafe is not None:
            for own, found in zip(marked, self._unsafe.spans_of(texts), strict=True):
                own += found
        return [sorted(own) if len(own) > 1 else own for own in marked]

    def _is_marked(self, span: Span) -> bool:
        options = self.options
        is_meant = span.score >= options.least_score and (options.labels is None or span.label in options.labels)
        return is_meant or span.label == UNREADABLE


def in_turn(first: Spotter, second: Spotter, texts: Sequence[str]) -> tuple[list[list[Span]], list[list[Span]]]:
    """What the first marks in each text, and what the second one marks where that is nothing; elsewhere it is not asked.

    The core detector reads each text once, if both are policies that know the same words.
    """
    if (
        isinstance(first, Policy)
        and isinstance(second, Policy)
        and first.options.known_words == second.options.known_words
    ):
        core = first.core_spans_of(texts)
        marked = first.spans_of(texts, core)
        left = [number for number, spans in enumerate(marked) if not spans]
        asked = second.spans_of([texts[number] for number in left], [core[number] for number in left])
    else:
        marked = first.spans_of(texts)
        asked = second.spans_of([text for text, spans in zip(texts, marked, strict=True) if not spans])
    answers = iter(asked)
    return marked, [[] if spans else next(answers) for spans in marked]


def package_policy(name: str) -> Policy:
    """A policy of the package: one of `POLICIES`."""
    text = resources.files("tacit.screening.policies").joinpath(f"{name}.yaml").read_text(encoding="utf-8")
    return Policy(PolicyOptions.model_validate(parse_yaml(text)))


def policy_from(options: PolicyOptions | TokenPolicyOptions) -> Policy | TokenPolicy:
    """The policy with these options.

    Raises:
        DataError: a pattern is unsafe.
    """
    return TokenPolicy(options) if isinstance(options, TokenPolicyOptions) else Policy(options)


def load_policy(path: Path) -> Policy | TokenPolicy:
    """A policy from a user's file.

    Raises:
        UsageError: it has an unknown, missing or impossible option, or none.
        DataError: the file cannot be read, is no YAML, or has an unsafe pattern; one line that names it.
    """
    options = load_policy_options(path)
    try:
        return policy_from(options)
    except DataError as error:
        message = str(error)
    raise DataError(message if message.startswith(str(path)) else f"{path}: {message}")


def load_policy_options(path: Path) -> PolicyOptions | TokenPolicyOptions:
    """What a user's file says, without making its detectors.

    Raises:
        UsageError: as `load_policy`.
        DataError: as `load_policy`, but for patterns.
    """
    refuse_pipe(path)
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        raise DataError(f"{path}: the policy cannot be read; check the path, and that it is UTF-8 text") from None
    return _parsed(text, str(path), path.parent)


def _parsed(text: str, place: str, folder: Path) -> PolicyOptions | TokenPolicyOptions:
    try:
        values: Any = parse_yaml(text)
    except yaml.YAMLError:
        raise DataError(f"{place}: this is not valid YAML") from None
    if values is None:
        raise UsageError(f"{place}: the file is empty: it holds no option; see docs/options.md")
    kind = TokenPolicyOptions if isinstance(values, dict) and "kind" in values else PolicyOptions
    try:
        return kind.model_validate(values, context=folder)
    except pydantic.ValidationError as error:
        message = in_one_line(error, place, kind, DETECTORS)
    raise UsageError(message)
