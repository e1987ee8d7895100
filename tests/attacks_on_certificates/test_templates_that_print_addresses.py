"""A chat template may not ask where something lies in memory: other units decide that (fourteenth attack).

What was wrong. Jinja prints a function, a method or an iterator by its address. A template that prints one text or another by a bit
of it wrote 591 of 600 conversations one way, and 0 of 600 with one more unit in the corpus; the run's certificate said epsilon 0.5.
Two views of keys give a set, whose order is the process's own: one user who ended the child that renders changed the tokens of all
users behind (twenty-third attack: 12 of 12 pairs of runs at a stated 1.919). "pprint" sorts by address what does not compare. No
released version read conversations.
"""

from __future__ import annotations

import re
import subprocess
import sys

import jinja2
import jinja2.sandbox
import pytest

from tacit.errors import DataError
from tacit.vocabulary.chat_template import ChatTemplate
from tacit.vocabulary.encode import encode_texts

from ..folders import byte_bpe

MESSAGES = [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]
ADDRESS = re.compile("0x[0-9a-f]{6}", re.IGNORECASE)

PRINTS = [
    "{{ 'x'.join }}",
    "{{ 'x'['jo' ~ 'in'] }}",
    "{{ 'x'|attr('join') }}",
    "{{ 'x'.join|string }}",
    "{{ 'x'.join|upper }}",
    "{{ messages[0].role.join ~ '!' }}",
    "{{ '%s' % messages[0].role.join }}",
    "{{ '{}'.format('x'.join) }}",
    "{{ '{0.join}'.format('x') }}",
    "{{ ['x'.join] }}",
    "{{ ['x'.join]|join }}",
    "{{ ('x'.join,)|string }}",
    "{{ {'a': 'x'.join} }}",
    "{{ {'x'.join: 'a'} }}",
    "{{ namespace(a='x'.join) }}",
    "{{ messages|map(attribute='role') }}",
    "{{ [messages|map('length')] }}",
    "{{ messages|reverse }}",
    "{{ messages|batch(2) }}",
    "{{ messages|map('attr', 'items')|list }}",
    "{{ messages|map(attribute='items')|list }}",
    "{{ messages[0]|items }}",
    "{{ range }}",
    "{{ cycler('a') }}",
    "{{ joiner() }}",
    "{% block one %}{{ self.one }}{% endblock %}",
]


@pytest.mark.parametrize("source", PRINTS)
def test_no_template_prints_an_address(source: str) -> None:
    wrong = jinja2.sandbox.ImmutableSandboxedEnvironment().from_string(source).render(messages=MESSAGES)
    assert ADDRESS.search(wrong)  # the known-wrong sandbox, which is transformers'
    assert ChatTemplate(source, "here").render(MESSAGES, {}) is None


@pytest.mark.parametrize(
    "source",
    [
        "{{ 'join' in ('x'.join|string) }}",  # one bit, and no address
        "{{ (messages|map('length')|string)|length }}",
        "{{ 'x'.join == 'x'.join }}",
        "{{ ['x'.join]|unique|list|length }}",
        "{{ messages[0].content is sameas 'a' }}",
        "{{ 'x'.join in ['y'.join] }}",
        "{{ lipsum() }}",
    ],
)
def test_no_template_sees_a_bit_of_one(source: str) -> None:
    assert ChatTemplate(source, "here").render(MESSAGES, {}) is None


def test_a_templates_text_hangs_on_no_text_before_it() -> None:
    """The attack: a string of so many bytes lies elsewhere if it is the longest so far."""
    source = (
        "{{ 'up' if 'at 0x7' in (('x' * (20000000 + 30000 * messages[0]['content']|int)).join|string) else 'down' }}"
    )

    def told(render, numbers: list[int]) -> list[str | None]:
        return [render([{"role": "user", "content": str(number)}]) for number in numbers]

    def wrong(messages: list[dict[str, str]]) -> str:
        return jinja2.sandbox.ImmutableSandboxedEnvironment().from_string(source).render(messages=messages)

    ours = ChatTemplate(source, "here")
    assert set(told(lambda messages: ours.render(messages, {}), [1, 300, 2, 3])) == {None}
    assert {*told(wrong, [1, 300, 2, 3])} <= {"up", "down"}  # which one is the process's doing


def test_what_templates_are_written_with_works_as_in_transformers() -> None:
    """Methods that are called, filters that give iterators, macros, namespaces, loops."""
    sources = [
        "{{ ', '.join(messages|map(attribute='role')) }}",
        "{{ messages|map(attribute='content')|map('upper')|list }}",
        "{{ messages|selectattr('role', 'equalto', 'user')|list|length }}",
        "{{ (messages|selectattr('role', 'equalto', 'user')|first).content.strip().title() }}",
        "{% for key, value in messages[0].items() %}{{ key }}={{ value }};{% endfor %}",
        "{% for key, value in messages[0]|items %}{{ loop.index0 }}{{ key }}{{ loop.cycle('a', 'b') }}{% endfor %}",
        "{% macro one(text) %}<{{ text }}>{% endmacro %}{{ one(messages[0].content) }}",
        "{% set ns = namespace(last=0) %}{% for m in messages %}{% set ns.last = loop.index %}{% endfor %}{{ ns.last }}",
        "{{ range(3)|list }}{{ dict(a=1) }}{{ '%s-%s' % ('a', 1) }}{{ '{:>3}'.format(7) }}",
        "{{ messages|reverse|map(attribute='role')|join('>') }}{{ 'a,b'.split(',')[-1] }}{{ messages|length }}",
        "{{ messages is iterable }}{{ missing is defined }}{{ none is sameas none }}{{ messages[0].items is callable }}",
        "{% for part in messages|batch(1) %}{{ part|length }}{% endfor %}{{ messages|groupby('role') }}",
    ]
    plain = jinja2.sandbox.ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True)
    for source in sources:
        expected = plain.from_string(source).render(messages=MESSAGES)
        assert ChatTemplate(source, "here").render(MESSAGES, {}) == expected, source


@pytest.mark.parametrize(
    "source",
    [
        "{{ '{:c}'.format(55357) }}",  # half a surrogate: its error ended the run, so one text decided whether it is released
        "{{ '%c' % 55357 }}",
        "{{ 'x' * 10 ** messages[0].content|length * 10 ** 12 }}",  # as much memory as one content says
        "{{ messages * 10 ** 9 }}",
        "{{ 'x'.encode() * 10 ** 12 }}",
        "{{ 7 ** (10 ** 9) }}",
    ],
)
def test_what_is_no_text_or_too_large_has_no_tokens(source: str) -> None:
    assert ChatTemplate(source, "here").render(MESSAGES, {}) is None


def test_a_text_that_the_tokenizer_cannot_read_has_no_tokens() -> None:
    assert [one.ids for one in encode_texts(byte_bpe(), ["\ud83d", "a"])] == [[], byte_bpe().encode("a").ids]


def test_a_template_that_is_nested_too_deep_is_refused() -> None:
    with pytest.raises(DataError, match="no valid Jinja"):
        ChatTemplate("{{ " + "(" * 5000 + "1" + ")" * 5000 + " }}", "here")


NAMESPACES = "{% set n = [namespace(), namespace(), namespace(), namespace()] %}"
SETS = [
    "{{ ({'one': 1, 'two': 2}.keys() - {}.keys())|join(' ') }}",
    "{% for word in {'one': 1, 'two': 2}.keys() - {}.keys() %}{{ word }}{% endfor %}",
    "{{ {'one': 1, 'two': 2}.keys() - {}.keys() }}",
    "{{ ({'one': 1, 'two': 2}.items() - {}.items())|list }}",
    "{{ ({'one': 1}.keys() - {}.keys()).union(['two', 'three'])|list }}",
    "{{ [{'one': 1, 'two': 2}.keys() - {}.keys()] }}",
    NAMESPACES + "{% for one in {n[0]: 0, n[1]: 1, n[2]: 2}.keys() - {}.keys() %}{{ n.index(one) }}{% endfor %}",
]


@pytest.mark.parametrize("source", SETS)
def test_no_template_walks_through_a_set(source: str) -> None:
    wrong = jinja2.sandbox.ImmutableSandboxedEnvironment().from_string(source).render(messages=MESSAGES)
    assert wrong  # the known-wrong sandbox gives some order
    assert ChatTemplate(source, "here").render(MESSAGES, {}) is None


def test_the_order_of_a_set_is_the_process_own() -> None:
    """Known wrong: the sandbox of transformers, in processes that hash in their own ways."""
    program = "import jinja2.sandbox as s; print(s.ImmutableSandboxedEnvironment().from_string(input()).render())"
    words = ", ".join(f"'{word}': 1" for word in ("one", "two", "three", "four", "five", "six"))
    source = f"{{{{ ({{{words}}}.keys() - {{}}.keys())|join(' ') }}}}"
    orders = {
        subprocess.run(
            [sys.executable, "-c", program],
            input=source,
            capture_output=True,
            text=True,
            check=True,
            env={"PYTHONHASHSEED": seed},
        ).stdout
        for seed in ("1", "2", "3", "4")
    }
    assert len(orders) > 1
    assert ChatTemplate(source, "here").render(MESSAGES, {}) is None


def test_nothing_is_sorted_by_place() -> None:
    with pytest.raises(DataError, match="no valid Jinja"):
        ChatTemplate("{{ {(1, 'a'): 1, ('b', 2): 2}|pprint }}", "here")


def test_other_operators_give_what_they_gave() -> None:
    source = "{{ 1 + 2 - 3 * 4 }} {{ 7 // 2 }} {{ 7 % 2 }} {{ 'a' + 'b' ~ 2 }} {{ '%03d' % 5 }} {{ 6 / 4 }}"
    assert ChatTemplate(source, "here").render(MESSAGES, {}) == "-9 3 1 ab2 005 1.5"
