"""What a chat template asks for at one conversation ends no run (twenty-second attack).

What was wrong. Jinja's sandbox bounds products alone. A template that pads a text to 10^15 characters where a message has a certain
word ended the run there with an error, and one that hashed a tuple of two million levels ended the process: with the word no
release, without it one that said epsilon 0.5. "Too little memory" is assumed not to occur, but here a public file decided that it
did. No released version read conversations.
"""

from __future__ import annotations

import os
import subprocess
from typing import Any

import pytest

from tacit.errors import UsageError
from tacit.vocabulary import rendering
from tacit.vocabulary.chat_template import ChatTemplate
from tacit.vocabulary.rendering import RenderedApart

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


def test_all_children_hash_alike(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a child says of a word's hash; known wrong: children that draw their own number."""
    begin = subprocess.Popen

    def begun(command: list[str], **options: Any) -> subprocess.Popen[str]:
        code = "import sys; sys.stdin.readline(); print('ready', flush=True); sys.stdin.readline(); print(hash('a'))"
        return begin([command[0], "-c", code], **{**options, "env": {**options["env"], **drawn}})

    def replies() -> set[str | None]:
        return {RenderedApart(ChatTemplate(PLAIN, "here")).render(said("a horse"), {}) for _ in range(2)}

    monkeypatch.setattr(rendering.subprocess, "Popen", begun)
    drawn: dict[str, str] = {}
    assert len(replies()) == 1
    drawn["PYTHONHASHSEED"] = "random"
    assert len(replies()) == 2


def test_without_a_child_there_is_an_error_and_no_silence(monkeypatch: pytest.MonkeyPatch) -> None:
    """Known wrong: every conversation without a text."""
    monkeypatch.setattr(rendering.sys, "executable", "/bin/false")
    with pytest.raises(UsageError, match="did not start"):
        RenderedApart(ChatTemplate(PLAIN, "here")).render(said("a horse"), {})


def test_the_conversation_before_decides_no_number_of_tries(monkeypatch: pytest.MonkeyPatch) -> None:
    """34th attack, by reading: the first one of a process was tried once, and any other twice, so that one that takes about the time
    that there is had text in half of the runs, or in three quarters."""
    asked: list[str] = []

    def answered(child: subprocess.Popen[str], request: str) -> str:
        asked.append(request)
        return rendering._READY if not request.startswith("[[") else "" if "zebra" in request else '"x"\n'

    monkeypatch.setattr(rendering, "_said", answered)
    apart = RenderedApart(ChatTemplate(PLAIN, "here"))
    tries = []
    for before in ([], ["a horse"], ["a horse", "a zebra"]):
        for content in before:
            apart.render(said(content), {})
        asked.clear()
        assert apart.render(said("a zebra"), {}) is None
        tries.append(sum("zebra" in request for request in asked))
        apart.close()
    assert tries == [2, 2, 2]


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
