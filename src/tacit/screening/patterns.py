"""The combined pattern: everything that is known by its form, found in one linear pass and then checked by a validator.

The pattern runs on RE2, whose time is linear in the text whatever the text is. It runs on normalised text
(tacit.screening.normalise). Alternatives are tried in the order of `_FORMS`; the first one that matches at a place wins,
and its validator may lower the match to what is left: a run of digits that fails Luhn is no card, yet still a number.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterator

import re2

from tacit.screening.validators import digits_of, is_card, is_date, is_iban, is_ip, is_phone, is_ssn

__all__ = ["Found", "formed"]

Found = tuple[int, int, str, float]
"""Start, end, label, score."""

_GAP = r"[ \-./()\n]{0,3}"
_MONTH = (
    r"(?i:jan(?:uary)?|feb(?:ruary)?|mar(?:ch)?|apr(?:il)?|may|june?|july?"
    r"|aug(?:ust)?|sept?(?:ember)?|oct(?:ober)?|nov(?:ember)?|dec(?:ember)?)"
)
_HOST = r"[\pL0-9](?:[\pL0-9\-]{0,30}\.){1,4}"
_RECORD = (
    r"account|acct|order|ref(?:erence)?|tracking|booking|confirmation|member(?:ship)?|customer|policy|case|ticket"
    r"|invoice|licen[cs]e|passport|record|claim|patient|mrn|id|pin|code"
)

_FORMS: dict[str, str] = {
    "email": r"@[\pL\pN](?:[\pL\pN.\-]*[\pL\pN])?",
    "url": r"(?i:https?://|ftp://|www\.)[^\s<>\"\x00]+",
    "domain": _HOST
    + r"(?i:com|org|net|edu|gov|info|io|co\.uk|[a-z]{2})/[^\s<>\"\x00]*|"
    + _HOST
    + r"(?i:com|org|net|edu|gov|info)\b",
    "ip": r"(?i:(?:[0-9a-f]{0,4}:){2,7}(?:[0-9a-f]{1,4}|(?:\d{1,3}\.){3}\d{1,3})|(?:[0-9a-f]{1,4}:){1,6}:)",
    "iban": r"(?i:\b[A-Z]{2}\d{2}(?:[ \n\-]{0,2}[A-Z0-9]{4}){2,7}(?:[ \n\-]{0,2}[A-Z0-9]{1,3})?\b)",
    "datetime": r"\b\d{4}-\d{2}-\d{2}"
    r"(?:[T ]\d{2}:\d{2}(?::\d{2}(?:\.\d{1,9})?)?(?:Z|[+\-]\d{2}:?\d{2})?)?",
    "date": r"\b" + _MONTH + r"\.? \d{1,2}(?:st|nd|rd|th)?,? \d{4}\b"
    r"|\b\d{1,2}(?:st|nd|rd|th)?(?: of)? " + _MONTH + r"\.?,? \d{4}\b",
    "age": r"\b(?:9\d|1[0-3]\d)(?:[ \-](?i:years?)[ \-](?i:old|of age)|[ \-]?(?i:y/?o)\b)"
    r"|\b(?i:aged?|turned|turning)(?: (?i:of|is))? (?:9\d|1[0-3]\d)\b",
    "postcode": r"\b[A-Z]{1,2}\d[A-Z\d]? ?\d[A-Z]{2}\b|\b[A-Z]\d[A-Z] ?\d[A-Z]\d\b|\b[A-Z]{2} \d{5}(?:-\d{4})?\b",
    "money": r"[$£¤] ?\d{1,3}(?:,\d{3})+(?:\.\d{1,2})?|[$£¤] ?\d+(?:\.\d{1,2})?",
    "record": r"\b(?i:" + _RECORD + r")\b(?i: number| no\b| id| code)?(?: ?[.:#]| (?i:is))? {0,2}#? ?"
    r"(?P<which>[\pL]{0,6}-?\d[\pL\pN\-/]{2,}|[A-Z]{6,24}\b)",
    "mixed": r"\b\d+[A-Za-z][A-Za-z0-9]*",
    "number": r"[+(]{0,2}\d(?:" + _GAP + r"\d){3,}(?:[ ,]{0,2}(?i:x|ext\.?) ?\d{1,6})?",
    "code": r"\d[A-Za-z0-9]{5,}|[A-Za-z]\d[A-Za-z0-9]{4,}|[A-Za-z]{2}\d[A-Za-z0-9]{3,}|[A-Za-z]{3}\d[A-Za-z0-9]{2,}"
    r"|[A-Za-z]{4}\d[A-Za-z0-9]+|[A-Za-z]{5,20}\d[A-Za-z0-9]*",
}


def _linear(forms: str) -> re2._Regexp:
    options = re2.Options()
    options.encoding = re2.Options.Encoding.LATIN1
    options.max_mem = 64 << 20
    options.log_errors = False  # that a text takes the slower of its two ways would be a line on standard error
    return re2.compile(forms.encode("latin-1"), options)


def _class_of(category: str) -> str:
    """The characters of Latin-1 that are of a category of Unicode, as they stand in a class."""
    return "".join(chr(code) for code in range(256) if unicodedata.category(chr(code))[0] == category)


def _backtracking(forms: str) -> re.Pattern[bytes]:
    """The forms for Python's ``re``, where ``\\s`` and classes of Unicode are not what they are for RE2."""
    plain = forms.replace(r"\pL", _class_of("L")).replace(r"\pN", _class_of("N")).replace(r"^\s", r"^\t\n\f\r ")
    return re.compile(plain.encode("latin-1"))


_NAMED = "|".join(f"(?P<{label}>{pattern})" for label, pattern in _FORMS.items())
_ANY = _linear(re.sub(r"\(\?P<\w+>", "(?:", _NAMED))
_WHICH = _linear(_NAMED)
_GROUPS = {label.decode() if isinstance(label, bytes) else label: group for label, group in _WHICH.groupindex.items()}
_WHICH_OF_SHORT = _backtracking(_NAMED)
_SHORT = 256  # bytes
_ORDER_NUMBER = re.compile(r"\d{3}-\d{5}-\d{4}")
_LOCAL_PART = re.compile(rb"[\w.%+'\-\x80-\xff]{1,64}\Z")
_YEAR = re.compile(r"(?:19|20)\d\d")
_LOCAL_LENGTH = 64


def formed(text: str) -> Iterator[Found]:
    """What the combined pattern finds in a normalised text: start, end, label, score in [0, 1].

    Scores: 1 a check digit or a number plan holds, 0.6 to 0.9 the form or a word before it says so, 0.5 just a number of
    four to six digits, below 0.3 what is no secret in most texts (a year, an amount of money).
    """
    data = text.encode("latin-1", "replace")
    for match in _ANY.finditer(data):
        label, start, end = _which(data, *match.span())
        check = _CHECKS.get(label)
        found = (start, end, label, _SCORES[label]) if check is None else check(text, start, end, label)
        if found is not None:
            yield found


def _which(data: bytes, start: int, end: int) -> tuple[str, int, int]:
    """The label of a match, and the part that is meant.

    RE2 takes long to say which alternative it was; Python's ``re`` says it faster, and is asked where a match is short: what any
    alternative reads is then bounded.
    """
    if data[start:end].isdigit():
        return "number", start, end  # what comes before it in _FORMS holds other characters too
    if end - start <= _SHORT:
        match = _WHICH_OF_SHORT.match(data, start)
        if match is not None and match.end() == end:
            label = str(match.lastgroup)
            return label, *match.span("which" if label == "record" else label)
    match = _WHICH.match(data, start)
    assert match is not None  # it has the alternatives of _ANY
    label = next(label for label in _FORMS if match.start(_GROUPS[label]) >= 0)
    return label, *match.span(_GROUPS["which" if label == "record" else label])


def _email(text: str, start: int, end: int, label: str) -> Found | None:
    """The host is found by its ``@``; the local part is what stands before it."""
    before = _LOCAL_PART.search(text[max(0, start - _LOCAL_LENGTH) : start].encode("latin-1", "replace"))
    return None if before is None else (start - len(before[0]), end, label, 1.0 if "." in text[start:end] else 0.4)


def _url(text: str, start: int, end: int, label: str) -> Found:
    return start, start + len(text[start:end].rstrip(".,;:!?)'")), "url", 0.9


def _ip(text: str, start: int, end: int, label: str) -> Found | None:
    return (start, end, label, 1.0) if is_ip(text[start:end]) else None


def _iban(text: str, start: int, end: int, label: str) -> Found | None:
    """The longest beginning whose check digits hold; else the first word of the match is a code like any other."""
    cuts = [end, *(start + gap.start() for gap in reversed(list(_SPACE.finditer(text[start:end]))))]
    held = next((cut for cut in cuts if is_iban(text[start:cut])), None)
    return _code(text, start, cuts[-1], "code") if held is None else (start, held, label, 1.0)


def _code(text: str, start: int, end: int, label: str) -> Found | None:
    found = text[start:end]
    digits = len(digits_of(found))
    if end - start < _CODE_LENGTH and digits < _CODE_DIGITS:
        return None
    return start, end, "code", 0.6 if digits >= 2 or found.isupper() else 0.25


def _number(text: str, start: int, end: int, label: str) -> Found:
    found = text[start:end]
    digits = len(digits_of(found))
    for kind, fewest, most, is_kind in _KINDS_OF_NUMBER:
        if fewest <= digits <= most and is_kind(found):
            return start, end, kind, 1.0
    if digits >= _LONG_NUMBER:
        return start, end, label, 0.8
    return (start, end, "year", 0.2) if _YEAR.fullmatch(found) else (start, end, label, 0.5)


_SPACE = re.compile(r"[ \n]+")
_CODE_LENGTH, _CODE_DIGITS = 6, 4
_LONG_NUMBER = 7
_KINDS_OF_NUMBER: tuple[tuple[str, int, int, Callable[[str], object]], ...] = (  # with the fewest and most digits
    ("ip", 4, 12, is_ip),
    ("order", 12, 12, _ORDER_NUMBER.fullmatch),
    ("card", 12, 19, is_card),
    ("ssn", 9, 9, is_ssn),
    ("date", 4, 8, is_date),
    ("phone", 7, 15, is_phone),
)
_CHECKS: dict[str, Callable[[str, int, int, str], Found | None]] = {
    "email": _email,
    "url": _url,
    "domain": _url,
    "ip": _ip,
    "iban": _iban,
    "number": _number,
    "code": _code,
    "mixed": _code,
}
_SCORES = {"datetime": 0.7, "date": 0.7, "age": 1.0, "postcode": 0.8, "money": 0.2, "record": 0.9}
