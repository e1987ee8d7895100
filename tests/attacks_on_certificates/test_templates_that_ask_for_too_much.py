"""What a chat template, or a tokenizer, asks for at one conversation ends no run (twenty-second attack).

What was wrong. Jinja's sandbox bounds products alone. A template that pads a text to 10^15 characters where a message has a certain
word ended the run there with an error, and one that hashed a tuple of two million levels ended the process: with the word no
release, without it one that said epsilon 0.5. A normalizer of four replacements wrote that word as 10^12 characters, and ended the
process too. "Too little memory" is assumed not to occur, but here a public file decided that it did. No released version read
conversations.
"""

from __future__ import annotations

import base64
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
from tokenizers import Tokenizer, normalizers

from tacit.errors import DataError, UsageError
from tacit.vocabulary import rendering
from tacit.vocabulary.chat_template import ChatTemplate
from tacit.vocabulary.given import read_given
from tacit.vocabulary.growth import MOST_GROWTH, growth_of
from tacit.vocabulary.rendering import RenderedApart

from ..folders import END, byte_bpe, save_tokenizer

PLAIN = "{% for m in messages %}{{ m.role + ': ' + m.content + '\n' }}{% endfor %}"
ASKS = {
    "memory": "{{ m.content.ljust(10**15)|length }}",
    "memory that there may be": "{{ m.content.ljust(2 * 10**8)|list|length }}",
    "stack": (
        "{% set ns = namespace(x=(1,)) %}{% for i in range(9999) %}{% for j in range(5) %}"
        "{% set ns.x = ((((((((ns.x,),),),),),),),) %}{% endfor %}{% endfor %}{{ {ns.x: 1}|length }}"
    ),
    "length": "{{ m.content.ljust(2 * 10**6) }}",
    "doubling": "{% set ns = namespace(x='a') %}{% for i in range(60) %}{% set ns.x = ns.x + ns.x %}{% endfor %}",
}


def asking(what: str) -> str:
    """A template that asks for it where somebody says "zebra"."""
    return f"{{% for m in messages %}}{{% if 'zebra' in m.content %}}{what}{{% endif %}}{{% endfor %}}{PLAIN}"


def said(content: str) -> list[dict[str, str]]:
    return [{"role": "user", "content": content}]


@pytest.mark.parametrize("what", list(ASKS))
def test_a_conversation_at_which_a_template_asks_for_too_much_has_no_text(what: str) -> None:
    apart = RenderedApart(ChatTemplate(asking(ASKS[what]), "here"))
    assert apart.render(said("a horse"), {}) == "user: a horse\n"
    assert apart.render(said("a zebra"), {}) is None
    assert apart.render(said("a horse"), {}) == "user: a horse\n"  # nor is any other touched
    apart.close()


def test_here_it_would_have_been_the_end() -> None:
    """Known wrong: the template in this process."""
    with pytest.raises(MemoryError):
        ChatTemplate(asking(ASKS["memory"]), "here").render(said("a zebra"), {})


def test_a_template_that_goes_on_for_ever_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """In a process of this test, whose bound is smaller: 0.2 seconds of a processor."""
    endless = "{% for a in range(9999) %}{% for b in range(9999) %}{% for c in range(9999) %}{% endfor %}{% endfor %}{% endfor %}"
    begin = subprocess.Popen

    def begun(command: list[str], **options: Any) -> subprocess.Popen[str]:
        code = "from tacit.vocabulary import rendering as r; r._SECONDS = 0.2; r._serve()"
        return begin([command[0], "-c", code], **options)

    monkeypatch.setattr(rendering.subprocess, "Popen", begun)
    apart = RenderedApart(ChatTemplate(asking(endless), "here"))
    assert apart.render(said("a horse"), {}) == "user: a horse\n"
    assert apart.render(said("a zebra"), {}) is None
    apart.close()


def test_one_that_took_much_is_rendered_by_a_new_child() -> None:
    """300 MB are within the bound, but what is left for the next one would hang on them."""
    apart = RenderedApart(ChatTemplate(asking("{{ m.content.ljust(3 * 10**8)|length }} "), "here"))
    assert apart.render(said("a horse"), {}) == "user: a horse\n"
    first = apart._child
    assert apart.render(said("a horse"), {}) == "user: a horse\n"
    assert apart._child is first
    assert apart.render(said("a zebra"), {}) == "300000000 user: a zebra\n"
    assert apart._child is None
    apart.close()


def test_what_an_earlier_conversation_did_to_a_child_is_not_the_next_ones_loss() -> None:
    apart = RenderedApart(ChatTemplate(PLAIN, "here"))
    assert apart.render(said("a horse"), {}) == "user: a horse\n"
    child = apart._child
    assert child is not None
    child.kill()
    child.wait()
    assert apart.render(said("a horse"), {}) == "user: a horse\n"
    apart.close()


def test_a_child_ends_with_its_owner_and_is_no_other_process_own() -> None:
    apart = RenderedApart(ChatTemplate(PLAIN, "here"))
    assert apart.render(said("a horse"), {}) == "user: a horse\n"
    child = apart._child
    assert child is not None
    apart._owner = os.getpid() + 1  # as in a process that was forked from this one
    assert apart.render(said("a horse"), {}) == "user: a horse\n"
    assert apart._child is not child
    apart.close()
    assert child.stdin is not None
    child.stdin.close()  # what the system does when the owner ends
    assert child.wait(timeout=20) == 0


def test_without_a_child_there_is_an_error_and_no_silence(monkeypatch: pytest.MonkeyPatch) -> None:
    """Known wrong: every conversation without a text."""
    monkeypatch.setattr(rendering.sys, "executable", "/bin/false")
    with pytest.raises(UsageError, match="did not start"):
        RenderedApart(ChatTemplate(PLAIN, "here")).render(said("a horse"), {})


def test_an_interrupted_reply_is_given_to_nobody_else(monkeypatch: pytest.MonkeyPatch) -> None:
    apart = RenderedApart(ChatTemplate(PLAIN, "here"))
    assert apart.render(said("a horse"), {}) is not None

    def interrupted(child: subprocess.Popen[str], request: str) -> str:
        assert child.stdin is not None
        child.stdin.write(f"{request}\n")
        child.stdin.flush()
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(rendering, "_said", interrupted)
        with pytest.raises(KeyboardInterrupt):
            apart.render(said("a zebra"), {})
    assert apart.render(said("a horse"), {}) == "user: a horse\n"
    apart.close()


@pytest.mark.parametrize("content", ["a horse", "", "\u2028 \x85 \ud800", 'a "quote"\\', "\U0001f600" * 1000])
def test_a_child_says_what_this_process_would(content: str) -> None:
    apart = RenderedApart(ChatTemplate(PLAIN + "{{ bos_token }}", "here"))
    here = ChatTemplate(PLAIN + "{{ bos_token }}", "here").render(said(content), {"bos_token": "<s>"})
    assert apart.render(said(content), {"bos_token": "<s>"}) == here
    apart.close()


# normalizers -----------------------------------------------------------------------------------------------------------


def normalized(normalizer: normalizers.Normalizer) -> Tokenizer:
    tokenizer = byte_bpe()
    tokenizer.normalizer = normalizer  # pyright: ignore[reportAttributeAccessIssue]
    return tokenizer


def table(longest: int) -> str:
    """A precompiled one with an empty trie, and texts of so many bytes at most."""
    return base64.b64encode((4).to_bytes(4, "little") + bytes(4) + b"a\0" + b"b" * longest + b"\0").decode()


GROWS: dict[str, dict[str, Any]] = {
    "four replacements": {
        "type": "Sequence",
        "normalizers": [{"type": "Replace", "pattern": {"String": "zebra"}, "content": "#" * 1000}]
        + 3 * [{"type": "Replace", "pattern": {"String": "#"}, "content": "#" * 1000}],
    },
    "nothing becomes something": {"type": "Replace", "pattern": {"String": ""}, "content": "#" * 20},
    "an expression": {"type": "Replace", "pattern": {"Regex": "x*"}, "content": "#" * 20},
    "a beginning": {"type": "Prepend", "prepend": "#" * 20},
    "a table": {"type": "Precompiled", "precompiled_charsmap": table(1000)},
    "no table": {"type": "Precompiled", "precompiled_charsmap": "?"},
    "unknown": {"type": "Newer"},
}
KNOWN: dict[str, Any] = {
    "BERT": {"type": "BertNormalizer", "clean_text": True},
    "Llama": {
        "type": "Sequence",
        "normalizers": [
            {"type": "Prepend", "prepend": "▁"},
            {"type": "Replace", "pattern": {"String": " "}, "content": "▁"},
        ],
    },
    "T5": {
        "type": "Sequence",
        "normalizers": [
            {"type": "Precompiled", "precompiled_charsmap": table(33)},
            {"type": "Strip"},
            {"type": "Replace", "pattern": {"Regex": " {2,}"}, "content": "▁"},
        ],
    },
    "GPT-2": None,
}


@pytest.mark.parametrize("name", list(GROWS))
def test_a_normalizer_that_may_make_a_text_very_long_is_refused(name: str) -> None:
    assert growth_of(GROWS[name]) > MOST_GROWTH


@pytest.mark.parametrize("name", list(KNOWN))
def test_those_of_known_models_may_be_used(name: str) -> None:
    assert growth_of(KNOWN[name]) <= 4


def test_the_growth_is_what_a_normalizer_does_at_most() -> None:
    """Replacements after one another, on texts made for them."""
    for parts in ([("ab", "#" * 7)], [("a", "bb"), ("b", "ccc")], [("", "xy")], [("abc", "a")]):
        stated = {"type": "Sequence", "normalizers": [_replacing(*part) for part in parts]}
        made = normalizers.Sequence([normalizers.Replace(*part) for part in parts])
        longest = max(len(made.normalize_str(text)) / len(text) for text in ("ab" * 50, "a" * 90, "abc" * 30, "a"))
        assert 1 <= max(1.0, longest) <= growth_of(stated)
    stated = {"type": "Sequence", "normalizers": [_replacing("a", "bb"), _replacing("b", "ccc")]}
    assert growth_of(stated) == 6
    assert (
        len(normalizers.Sequence([normalizers.Replace("a", "bb"), normalizers.Replace("b", "ccc")]).normalize_str("a"))
        == 6
    )


def _replacing(pattern: str, text: str) -> dict[str, Any]:
    return {"type": "Replace", "pattern": {"String": pattern}, "content": text}


def test_a_folder_with_such_a_normalizer_is_refused(tmp_path: Path) -> None:
    grows = normalizers.Sequence([normalizers.Replace("zebra", "#" * 100), normalizers.Replace("#", "#" * 100)])
    save_tokenizer(normalized(grows), tmp_path, bos_token=END, eos_token=END)
    with pytest.raises(DataError, match="16 times as long"):
        read_given(tmp_path)
    save_tokenizer(normalized(normalizers.Replace(" ", "▁")), tmp_path, bos_token=END, eos_token=END)
    assert read_given(tmp_path).special.size > 0
