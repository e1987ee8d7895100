"""Every word and every gap between words as one letter, so that patterns over words are patterns over short strings.

    w function word      W the same, capitalised   c common word      C the same, capitalised   J "I"
    f first or last name F the same, capitalised   u unknown word     U the same, capitalised   G capitalised, word and name
    o the, of, and       O the same, capitalised   e de, la, van ...  I initial, i in lower case, A, a as they are
    d number of 1 to 3 digits                      D of 4 and more    x letters and digits
    S street, avenue     Q apartment, suite, box   T title (Dr, MD)   M military post (APO, FPO, DPO)
    B salon, inn ...     Z two capitals, a state   K "corner"         N "name"
    S, Q, T, M, K, N are s, q, t, m, k, n in lower case; B is b (salon, clinic) or h (inn, shop)

    gaps: space, / line feed, comma, full stop, - (hyphen, apostrophe, & / + and brackets), #, colon, | (all else)

"common" and "name" go by the lists in wordlists/ (wordlists/build.py says where they come from).
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache
from importlib import resources

__all__ = ["CONTRACTED", "Lexicon", "common_words", "listed_names"]

_MOST_REMEMBERED = 1_000_000
_LONGEST_REMEMBERED = 256  # characters
_SHORT_NUMBER = 3
_SHORT_WORD = 2


def _set(words: str) -> frozenset[str]:
    return frozenset(words.split())


_FUNCTION = _set("""
    a about after again all also am an any are as ask at be because been before both but by called can could did do
    does done each either for from get give go going got had has have he hello help her here hers hey hi him his how i
    if in into is isn it its just know later let like ll made make many me more most much must my near need next no
    not now of off ok okay on once one only or other our out over please re s see send should so some such sure take tell
    than thank thanks that the their them then there these they this those through to too two until up us use ve very want
    was we went were what when where which while who whom why with would yes yet you your yours
""")
CONTRACTED = _set("""
    ain aren couldn didn doesn don hadn hasn haven isn mightn mustn needn oughtn shan shouldn wasn weren won wouldn
""")  # what is left of it before n't
_CONNECTORS = _set("""
    of de da do dos das del dei degli della des di du la le les van von
    der den ter ten el al bin ibn y e und and the
""")
_ARTICLES = _set("the and of")
_ALSO_NAMES = _set("may will don april june august")
_SINGLE = {"I": "J", "A": "A", "a": "a", "i": "w"}
_STATES = _set("""
    AL AK AZ AR CA CO CT DC DE FL GA IA ID IL KS KY LA MA MD MI MN MO MS MT NC ND NE NH NJ NM NV NY OH PA PR RI SC SD TN TX UT
    VA VI VT WA WI WV WY AE AA AP GU AS FM MH MP PW
""")
_TITLES = _set("dr mr mrs ms miss prof professor dame rev fr md dds dmd phd jr sr esq ii iii iv pa np mph facog")
_STREETS = _set("""
    street st str avenue ave av road rd boulevard blvd drive dr lane ln way court ct place pl terrace ter parkway pkwy highway
    hwy square sq circle cir trail trl alley plaza crescent close gardens row walk mews quay freeway expressway turnpike
    alameda camino broadway embarcadero junction path loop ridge mall trace spur neck ways key keys cove creek crossing bypass
    points forge forks route view mount mountain shoals extension center field fields flat flats ford grove harbor haven
    heights hill hills inlet island isle knoll lake landing light lights loaf locks lodge manor meadow meadows mill mills
    mission motorway orchard oval park passage pike pine pines plain plains port prairie radial ramp ranch rapid rapids rest
    river shore shores spring springs squares station stravenue stream streets summit throughway trafficway tunnel underpass
    union valley via viaduct village ville vista wall well wells
    rue avenida calle via strasse straße weg gasse platz plein laan straat gata gate vej gade ulica ul utca u tie katu rua
""")
_UNITS = _set("apt apartment suite ste unit box floor fl room rm po pmb psc building bldg no block lot")
_DIRECTIONS = _set("n s e w ne nw se sw north south east west northeast northwest southeast southwest")
_MILITARY = _set("apo fpo dpo")
_SHOPS = _set("""
    apartments barber barbershop clinic cuts dental dentistry dermatology haircut haircuts inc institute lab llc ltd medical
    orthodontics physicians plc practice salon salons smiles spa studio studios surgery
""")
_BUSINESS = _set("""
    associates bank bar beauty cafe care center centre church club college company corp dentist dentists design gmbh
    grill group hair hospital hotel inn kitchen homes lodge lounge market museum office restaurant school shop
    services theater theatre university
""")

_CLOSED: dict[str, str] = (
    dict.fromkeys((*_SHOPS, *_BUSINESS), "B")
    | dict.fromkeys(_STREETS, "S")
    | dict.fromkeys(_UNITS, "Q")
    | dict.fromkeys(_FUNCTION | (CONTRACTED - {"don", "haven", "won"}), "w")
    | dict.fromkeys(_CONNECTORS, "o")
    | dict.fromkeys(_TITLES, "T")
    | dict.fromkeys(_MILITARY, "M")
    | dict.fromkeys(_DIRECTIONS, "c")
    | {"corner": "K", "name": "N", "names": "N", "i": "w", "a": "w", "do": "w", "no": "w", "number": "c"}
)


def _lines(name: str) -> tuple[str, ...]:
    text = resources.files("tacit.screening.wordlists").joinpath(name).read_text(encoding="utf-8")
    return tuple(text.split())


@lru_cache(maxsize=1)
def common_words() -> tuple[str, ...]:
    """Ordinary English words, the most frequent first: those of everyday service first, then those counted in public text."""
    return tuple(dict.fromkeys((*_lines("service.txt"), *_lines("common.txt"))))


@lru_cache(maxsize=1)
def listed_names() -> frozenset[str]:
    """First and last names of many countries, in lower case."""
    return frozenset(_lines("names.txt"))


class Lexicon(dict[str, str]):
    """The letter of a word or gap; what was looked up is remembered, up to a bound, for words repeat.

    Args:
        known: further words that count as common.
    """

    def __init__(self, known: Iterable[str] = ()) -> None:
        super().__init__()
        self._common = frozenset(common_words()) | _ALSO_NAMES | CONTRACTED | frozenset(word.lower() for word in known)
        self._names = listed_names()
        self._service = frozenset(_lines("service.txt"))

    def __missing__(self, word: str) -> str:
        if len(word) > _LONGEST_REMEMBERED:
            return self._letter(word)
        if len(self) >= _MOST_REMEMBERED:
            self.clear()
        letter = self[word] = self._letter(word)
        return letter

    def _letter(self, word: str) -> str:
        if not word[:1].isalnum():
            return _gap(word)
        if not word.isalpha():
            return ("d" if len(word) <= _SHORT_NUMBER else "D") if word.isdigit() else "x"
        if len(word) == 1:
            return _SINGLE.get(word, "I" if word.isupper() else "i")
        lower = word.lower()
        if word in _STATES:
            return "Z"
        if lower in _CLOSED:
            return self._closed(word, lower, _CLOSED[lower])
        if len(word) == _SHORT_WORD and word.isupper():
            return "Z"
        return self._open(word, lower)

    def _closed(self, word: str, lower: str, letter: str) -> str:
        if not word[0].isupper():
            if letter == "o":
                return "o" if lower in _ARTICLES else "e"
            return "h" if lower in _BUSINESS else letter.lower()
        if word == "DO":
            return "T"
        if letter == "w":
            return "W"
        if letter == "o":
            return "O" if lower in _ARTICLES else self._open(word, lower)
        return letter.upper()

    def _open(self, word: str, lower: str) -> str:
        common, name = lower in self._common, lower in self._names and lower not in self._service
        if not word[0].isupper() and word[0].lower() != word[0].upper():
            return "c" if common else "f" if name else "u"
        return ("G" if name else "C") if common else "F" if name else "U"


_TIGHT = re.compile(r" ?[-/'&+()] ?")
_COMMA = re.compile(r" ?\.?,[ \n]*")
_STOP = re.compile(r"\. ?")
_NUMBER_SIGN = re.compile(r",? ?#[ \n]?")
_BREAK = re.compile(r"[,.;]?[ ]*\n[ \n]*(?:,[ \n]*)?")


def _gap(gap: str) -> str:
    forms = ((_COMMA, ","), (_STOP, "."), (_TIGHT, "-"), (_NUMBER_SIGN, "#"), (_BREAK, "/"))
    if gap == " ":
        return " "
    return next((letter for form, letter in forms if form.fullmatch(gap)), ":" if gap.strip() == ":" else "|")
