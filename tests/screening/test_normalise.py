"""Normalisation: what it maps, and that every character has its place in the original."""

from __future__ import annotations

import re
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tacit.screening import normalise as normalise_module
from tacit.screening.normalise import Normalised, is_plain, normal_form, normalise


@pytest.mark.parametrize(
    ("text", "plain"),
    [
        ("４１１１", "4111"),
        ("٤١١", "411"),
        ("４\u200b1\u00ad1\u20601", "4111"),
        ("4\ufe0f1\u20e31", "411"),
        ("4\u0332\u03321\u0332", "41"),
        ("𝟒𝟙①", "411"),
        ("a‑b–c—d−e", "a-b-c-d-e"),
        ("a\u00a0b\u3000c\td", "a b c d"),
        ("a\u2028b\x85c\x0bd", "a\nb\nc\nd"),
        ("a\x00b\x07c", "abc"),
        ("O’Brien", "O'Brien"),
        ("ﬁle", "file"),
        ("e\u0301té", "été"),
    ],
)
def test_one_spelling(text: str, plain: str) -> None:
    assert normalise(text).text == plain


@given(st.text())
def test_every_character_has_its_place(text: str) -> None:
    found = normalise(text)
    assert len(found.text) == len(found.starts) == len(found.ends)
    for index, character in enumerate(found.text):
        start, end = found.original(index, index + 1)
        assert 0 <= start < end <= len(text)
        assert character in normalise(text[start:end]).text
    assert found.starts == sorted(found.starts)
    assert "\0" not in found.text


@given(st.text(alphabet=st.characters(min_codepoint=0x20, max_codepoint=0x7E) | st.just("\n")))
def test_plain_text_is_left_alone(text: str) -> None:
    assert is_plain(text)
    assert normalise(text) == Normalised(text, list(range(len(text))), list(range(1, len(text) + 1)))


def test_all_other_characters_are_not_plain() -> None:
    codes = [*range(0x300), 0x2028, 0xD800, 0xFF11, 0x1D7D8]
    assert [code for code in codes if is_plain(f"a{chr(code)}b")] == [ord("\n"), *range(0x20, 0x7F)]


def test_a_map_that_forgets_the_change_of_length_is_caught() -> None:
    """Known-wrong: NFKC of the whole text, offsets taken as they are. Three ligatures shift them by three."""
    text = "ﬁnd ﬁne ﬁle 4111"
    wrong = unicodedata.normalize("NFKC", text).index("4111")
    right = normalise(text)
    assert text[right.original(right.text.index("4111"), right.text.index("4111") + 4)[0] :] == "4111"
    assert text[wrong:] != "4111"


MARKS = "\u0301\u0327\u0323"  # three classes, so that they must be put in order
FORMS = ("NFC", "NFD", "NFKC", "NFKD")


@given(st.text(alphabet=st.sampled_from("aé１ﬁ한" + MARKS), max_size=60))
def test_normal_forms_are_unicodes_own(text: str) -> None:
    """For every text without more than thirty marks in a row."""
    if re.search(f"[{MARKS}]{{30}}", unicodedata.normalize("NFKD", text)) is None:
        assert [normal_form(form, text) for form in FORMS] == [unicodedata.normalize(form, text) for form in FORMS]


@pytest.mark.parametrize("marks", ["\u0301\u0327" * 5000, "\u0301" * 5000 + "\u0327" * 5000])
def test_very_many_marks_are_put_in_order_piece_by_piece(marks: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Putting n marks in order takes n * n steps: a text of a million stopped the screening for half an hour."""
    asked: list[int] = []
    unicodes = unicodedata.normalize

    def counted(form: str, text: str) -> str:
        asked.append(len(text))
        return unicodes(form, text)  # pyright: ignore[reportArgumentType]

    monkeypatch.setattr(normalise_module.unicodedata, "normalize", counted)
    text = f"x{marks}4111{marks}"
    found = normalise(text)
    assert [character for character in found.text if character.isalnum()] == ["x", "4", "1", "1", "1"]
    start, end = found.original(found.text.index("4"), len(found.text.rstrip("\u0301")))
    assert text[start:].startswith("4111")
    assert end <= len(text)
    for form in FORMS:
        assert sorted(unicodes("NFD", normal_form(form, text))) == sorted(text)
    assert max(asked) <= 2 * 31 + 4  # a piece may hold what stands between two rows of marks


@given(st.text(alphabet=st.sampled_from("a1" + MARKS), max_size=200))
def test_every_character_of_many_marks_has_its_place(text: str) -> None:
    found = normalise(text)
    assert found.starts == sorted(found.starts)
    assert len(found.text) == len(found.starts) == len(found.ends)
    assert all(0 <= start < end <= len(text) for start, end in zip(found.starts, found.ends, strict=True))
