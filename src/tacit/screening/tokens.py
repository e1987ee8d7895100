"""A policy that looks at one token at a time, so that a secret it catches leaves no trace (docs/confidentiality.md, token by token).

A token is a maximal run of characters that are no white space: where it begins and ends is the same whatever other tokens are.
All that such a policy can say is `TokenRule`, a function of one token; no option gives it a neighbour, a sentence or a corpus.
"""

from __future__ import annotations

import functools
import hashlib
import re
import string
from collections.abc import Callable, Iterator, Sequence
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator

from tacit.screening.lexicon import common_words, listed_names
from tacit.screening.normalise import is_plain, normalise
from tacit.screening.redact import MASK
from tacit.screening.spans import Span
from tacit.screening.user_patterns import compiled

__all__ = ["TokenPolicy", "TokenPolicyOptions", "TokenRule", "token_spans"]

_TOKEN = re.compile(r"\S+")
_PUNCTUATION = string.punctuation + "“”„«»¿¡"
_MOST_REMEMBERED = 1 << 16
_LONGEST_REMEMBERED = 256  # characters
_LISTS = {"names": listed_names, "common": common_words}


class TokenPolicyOptions(BaseModel):
    """A policy that marks a token by that token alone.

    A token is what stands between white space. It is looked up, and matched as a whole, as it is written and without the punctuation
    at its ends; full-width digits and the like are read as plain ones.

    Args:
        kind: ``tokens``.
        name: its name in reports.
        mark: ``listed`` marks what the words, lists and patterns hold; ``unlisted`` all other tokens.
        words: tokens; upper and lower case are the same.
        lists: of the package: ``names`` (first and last names), ``common`` (ordinary English words).
        patterns: in RE2's syntax; each must match the whole token.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)

    kind: Literal["tokens"]
    name: Annotated[str, Field(min_length=1)]
    mark: Literal["listed", "unlisted"] = "listed"
    words: tuple[str, ...] = ()
    lists: tuple[Literal["names", "common"], ...] = ()
    patterns: tuple[Annotated[str, Field(min_length=1)], ...] = ()

    @field_validator("words")
    @classmethod
    def _are_tokens(cls, words: tuple[str, ...]) -> tuple[str, ...]:
        if not all(_TOKEN.fullmatch(word) for word in words):
            raise ValueError("a word is empty or holds white space: no token is ever equal to it")
        return words


class TokenRule:
    """Whether a token is marked; it is given that token and nothing else.

    Raises:
        DataError: RE2 does not accept a pattern, or it matches the empty text.
    """

    def __init__(self, options: TokenPolicyOptions) -> None:
        known = (word for name in options.lists for word in _LISTS[name]())
        self._words = frozenset(_plain(word).casefold() for word in (*options.words, *known))
        self._patterns = [
            compiled(f"patterns, item {number}", pattern) for number, pattern in enumerate(options.patterns, start=1)
        ]
        self._marks_listed = options.mark == "listed"

    def __call__(self, token: str) -> bool:
        """A mask is marked too: what is masked beside it becomes one run with it. Raw text has none, it is escaped there."""
        return MASK in token or self._is_listed(token) == self._marks_listed

    def _is_listed(self, token: str) -> bool:
        whole = _plain(token)
        return any(self._holds(form) for form in {whole, whole.strip(_PUNCTUATION)})

    def _holds(self, form: str) -> bool:
        return form.casefold() in self._words or any(pattern.fullmatch(form) for pattern in self._patterns)


def _plain(token: str) -> str:
    return token if is_plain(token) else normalise(token).text


def token_spans(marks: Callable[[str], bool], text: str) -> Iterator[Span]:
    """Maximal runs of marked tokens, with the white space between them: a secret of several tokens becomes one mask."""
    begin, end = 0, 0
    for match in _TOKEN.finditer(text):
        if marks(match[0]):
            begin, end = (begin if end else match.start()), match.end()
        elif end:
            yield Span(begin, end, "token", 1.0, "tokens")
            end = 0
    if end:
        yield Span(begin, end, "token", 1.0, "tokens")


class TokenPolicy:
    """A policy made of a `TokenRule`. What else there is of it follows from the rule."""

    reads_any_text = True

    def __init__(self, options: TokenPolicyOptions) -> None:
        self.options = options
        self._rule = TokenRule(options)
        self._remembered = functools.lru_cache(_MOST_REMEMBERED)(self._rule)  # tokens repeat

    def marks(self, token: str) -> bool:
        """Whether a token is marked."""
        return (self._remembered if len(token) <= _LONGEST_REMEMBERED else self._rule)(token)

    @property
    def name(self) -> str:
        """The policy's name."""
        return self.options.name

    @functools.cached_property
    def digest(self) -> str:
        """SHA-256 of its options: equal for policies that mark the same tokens."""
        return hashlib.sha256(self.options.model_dump_json().encode()).hexdigest()

    def spans(self, text: str) -> list[Span]:
        """What the policy marks in one text, in code points."""
        return [*token_spans(self.marks, text)]

    def spans_of(self, texts: Sequence[str]) -> list[list[Span]]:
        """What the policy marks in each text."""
        return [self.spans(text) for text in texts]
