"""Names and addresses: patterns over the letters of the words (tacit.screening.lexicon), in linear time.

The patterns know no text: "a capitalised unknown word with capitalised neighbours is a name" is ``[UF]`` with its
neighbours. They run on Python's ``re``; each repetition is bounded, so that no text can make one slow.
"""

from __future__ import annotations

import functools
import re

import numpy as np
from numpy.typing import NDArray

from tacit.screening.begins import ADDRESS, BUSINESS, NAME, places_to_try
from tacit.screening.letters import letters_of
from tacit.screening.lexicon import Lexicon
from tacit.screening.patterns import Found

__all__ = ["Words"]

_GLUE = r"(?:[ \-]|(?<=[IAiTtZSsQqu])\.)"
_LINK = r"(?:[oeOAaiW][ \-.]|J\.){0,3}"
_MEMBER = r"[UFGCIZTBSMQONKxdD](?:-[a-z])?"
_LOOSE = r"[ /,.\-#]"
_NUMBER = r"[dDx](?:-[dDx])?"
_ADDRESS_WORD = r"[UFGCufcheIdDxZTBQSKOotAsbiW]"
_CITY = rf"(?:[ ,]{_LINK}[UFGCZ]){{0,6}}(?: D)?(?:,{_LINK}[UFGCZ](?: [UFGCcZ])?){{0,2}}"
_STREET_END = r"(?:[Ss]|T(?![ ,.][UFI]))(?: [cC](?=[ ,.|/]))?(?: [IiAa](?=[.,|]))?"
_UNIT = rf"(?:{_LOOSE}{{1,2}}(?:[Qq]{_LOOSE})?(?:[dDx]|(?<=[#QqF.])[IiAaZc]|(?<=[Qq] )[iaIAcZ])(?: [Qq](?![a-z]))?)"
_NAME_WORD = rf"(?:{_GLUE}{_LINK}(?:{_MEMBER}|[uf]))"
_AFTER = r"(?:,(?:[TtZU](?:-I)?|I\.I)(?![a-zA-Z])){0,4}"
_START = r"(?:(?<=[a-zN] )[oOAW] |[Aa][ \-](?=[IxdUB]|C-))?"
_BUSINESS_START = r"(?:(?<=[a-zN] )[oOAW] |W (?=[UFC] B)|(?:[Aa][ \-]){1,2}(?=[IxdUB]|C-))?"

# Each is tried at each word where its family may begin, in this order; the first that matches wins.
_FORMS = {
    # 12 Old Mill Road Apt. 4, Smithtown, CT 85093, USA; also without a known word for the street
    "address_zip": rf"{_NUMBER}(?:{_LOOSE}{_ADDRESS_WORD}){{1,14}}?(?:{_LOOSE}Z|,[wWoO]){_LOOSE}D(?:,[UFGCZ](?: [UFGCZ])?)?",
    # Unit 1409 Box 0320 DPO AE 07927; USS Smith FPO AP 12345
    "address_military": rf"(?:[QqUFCGuf]{_LOOSE}){{1,2}}[dDxufUFCGc](?:{_LOOSE}[UFGCufcdDxQq]){{0,4}}"
    rf"{_LOOSE}[Mm]{_LOOSE}[ZcuwotWe]{_LOOSE}D",
    # 12 Old Mill Road, 2nd Floor, Smithtown
    "address": rf"{_NUMBER}(?:(?:[ ,\-#]|(?<=[ITZSQsqu])\.){_ADDRESS_WORD}){{1,6}}[ .\-]"
    rf"{_STREET_END}{_UNIT}{{0,3}}{_CITY}{_UNIT}{{0,3}}",
    # Avenida Central 12, Luite tee 87
    "address_number": rf"(?:[dDx] ){{0,2}}(?:[sS][ .])?[UFufS](?:{_GLUE}{_LINK}[UFGCufcsqSQ]){{0,3}} [dDx](?!-)",
    "corner": rf"(?:[oO] )?[Kk] o(?:[ .]{_ADDRESS_WORD}){{1,6}}(?: o(?:[ .]{_ADDRESS_WORD}){{1,3}})?",
    "unit": rf"[Qq]{_LOOSE}[dDx]",
    "titled": rf"[Tt][ .][UFGCIufc]{_NAME_WORD}{{0,4}}(?:,[UF](?: [IA])?)?{_AFTER}",
    "named": rf"(?:(?<=[Nn][ \-]w )|(?<=[Nn]:))(?:W A )?[UFGCIufc]{_NAME_WORD}{{0,3}}",
    # Red Hill Dental, Cuts for Kids; A+ Haircuts; Alamo garden apartments; (with) apple dental practice
    "business": rf"{_BUSINESS_START}[UFGCufxD](?:-[a-zI])?"
    rf"(?:(?:[ \-]{_LINK}|(?<=[CSUFG]) w )[UFGCISx](?:-[a-zI])?){{0,3}}[ \-]B"
    r"(?:[ \-][BbhSsUCFG]){0,4}(?: [wWo] [UFGCB](?: [UFGCB])?)?(?:,[Bb])?"
    r"|[Aa]-[Bb](?: [wW] [UFGCc])?"
    rf"|{_BUSINESS_START}(?:[UFGxDSuf]|(?<=[a-z] )C)(?:-[a-z])?(?:[ \-][UFGCufcIixSd]){{0,2}}"
    r"[ \-][bhB](?:[ \-][BbhSUFGC]){0,4}(?: o [bhB])?"
    r"|(?<=[woN] )(?:a )?(?:[cufis](?:-[a-z])?[ \-]){1,4}b(?: [bhs]){0,4}",
    "run": rf"{_START}{_MEMBER}(?:{_GLUE}{_LINK}{_MEMBER}){{1,12}}(?:-[a-z])?(?: h)?{_AFTER}",
    "lettered": r"(?<=[woNai] )[cuf](?:[ .][cufIi]){1,2}(?:,| )[tTZ](?! [cufUFGC])",
    "one": r"[UF](?:-[a-zA-Z]){0,6}|(?<=[a-z] )G(?:-[wi])?|[GB](?=:)|(?<=[|:])G(?=[|.])|(?<=[,/])[IZ](?=/)",
    "lower": rf"(?:e ){{0,3}}[fu](?:[ \-.]{_LINK}[fuUF]){{0,4}}(?:-[wi])?(?:,(?:t|i\.i))?(?: s)?",
}
_SEEDS = re.compile(r"[UFx]")
_TWO_CAPITALS = re.compile(r"[FGCIZTBSMQONKU].*[FGCIZTBSMQONKU]")
_BRACKETED = 60
_BETWEEN = "\0"  # between texts that are read together (tacit.screening.core)
_SENTENCE_ENDS = frozenset(".|:")
_CLOSING = frozenset(".)")
_SCORES = {
    "address_zip": 0.9,
    "address_military": 0.9,
    "address": 0.8,
    "address_number": 0.5,
    "corner": 0.8,
    "unit": 0.6,
    "titled": 0.8,
    "named": 0.6,
    "lettered": 0.6,
    "business": 0.4,
}
_LABELS = {kind: "address" if kind.startswith(("address", "corner", "unit")) else "name" for kind in _FORMS}
_FAMILIES = {
    kind: ADDRESS if label == "address" else BUSINESS if kind == "business" else NAME for kind, label in _LABELS.items()
}


@functools.cache
def _pattern(families: int) -> re.Pattern[str]:
    """The forms of these families; the first that matches wins."""
    return re.compile("|".join(f"(?P<{kind}>{form})" for kind, form in _FORMS.items() if _FAMILIES[kind] & families))


class Words:
    """Finds names and addresses in a normalised text.

    Args:
        lexicon: which words are common.
    """

    def __init__(self, lexicon: Lexicon) -> None:
        self._lexicon = lexicon

    def letters(self, text: str) -> tuple[str, NDArray[np.int64]]:
        """A letter for each gap (even places) and word (odd places), and where each of them begins, and the end."""
        return letters_of(text, self._lexicon)

    def found(self, text: str) -> list[Found]:
        """Names and addresses: start, end, label, score in [0, 1]."""
        letters, places = self.letters(text)
        forms = _forms(letters)
        starts = places[np.array([form[0] for form in forms], np.int64)].tolist()
        ends = places[np.array([form[1] for form in forms], np.int64)].tolist()
        return [
            (start, _end(text, letters[last - 1], end) if text[end : end + 1] in _CLOSING else end, label, score)
            for (_, last, label, score), start, end in zip(forms, starts, ends, strict=True)
        ]


def _forms(letters: str) -> list[Found]:
    """Names and addresses in places of letters; where one ends the next is looked for."""
    found: list[Found] = []
    end = 0
    for place, families in places_to_try(letters):
        if place < end:
            continue
        match = _pattern(families).match(letters, place)
        if match is None:
            continue
        kind, end = str(match.lastgroup), match.end()
        if kind in _SCORES:
            found.append((place, end, _LABELS[kind], _SCORES[kind]))
        elif kind == "lower":
            found.append((place, end, "name", _lower_score(letters, place, end)))
        else:
            one = _capitalised(letters, place, end)
            if one[3]:
                found.append(one)
    return found


def _lower_score(letters: str, first: int, last: int) -> float:
    """How likely unknown words in lower case are a name: more when listed, several, or after a function word ("to xiaoxue")."""
    if "f" in letters[first:last]:
        return 0.5
    return 0.4 if last - first > 1 else 0.3 if letters[first - 2 : first] == "w " else 0.25


def _capitalised(letters: str, first: int, last: int) -> tuple[int, int, str, float]:
    """A run of capitalised words: which of them are a name, whether a number makes it an address, and how sure."""
    opens = last - first > 1 and letters[first - 1] in _SENTENCE_ENDS
    if opens and (
        (letters[first] in "OW" and letters[first - 1] != ":")
        or (letters[first] == "C" and _SEEDS.search(letters, first + 1, last))
    ):
        first += 2
        if last - first == 1 and letters[first] not in "UFGx":
            return first, last, "name", 0.0
    number_before = first >= 2 and letters[first - 2] in "dDx" and letters[first - 1] in " -#,"
    number_after = last + 1 < len(letters) and letters[last + 1] in "dDx" and letters[last] in " /,#"
    seeds = _SEEDS.search(letters, first, last) is not None
    if number_before or (number_after and seeds):
        return first - 2 * number_before, last + 2 * number_after, "address", 0.6
    if seeds or last - first == 1:
        return first, last, "name", 0.6
    return first, last, "name", 0.35 if _TWO_CAPITALS.search(letters, first, last) else 0.0


def _end(text: str, letter: str, end: int) -> int:
    """Where the last word ends, which has this letter; with its full stop if it is an abbreviation."""
    if letter in "IAiTtSsQB" and text[end : end + 1] == ".":
        return end + 1
    if text[end : end + 1] != ")":
        return end
    start = max(0, end - _BRACKETED)
    start = max(
        start, text.rfind(_BETWEEN, start, end) + 1
    )  # no bracket of another text that is read together with this one
    return end + (text.rfind("(", start, end) > text.rfind(")", start, end))
