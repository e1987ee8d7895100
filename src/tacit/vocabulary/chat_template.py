"""Chat templates: how a tokenizer's folder says that messages are written, as Jinja; rendered here as transformers renders them.

A template is public, a part of the given tokenizer. It is code of the folder, so it runs in a sandbox, where it can read its
arguments and nothing else (`tacit.vocabulary.template_sandbox`). ``strftime_now`` and what draws at random are not there: a text must
have the same tokens tomorrow.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, NoReturn

import jinja2
import jinja2.ext
import jinja2.nodes
import jinja2.parser

from tacit.errors import DataError
from tacit.failures import is_out_of_memory
from tacit.vocabulary.special import OWN_NAMES
from tacit.vocabulary.template_sandbox import TemplateSandbox

__all__ = ["GENERATED", "TEMPLATE_FILE", "ChatTemplate", "default_template", "own_template", "read_chat_template"]

TEMPLATE_FILE = "chat_template.jinja"
"""Where transformers keeps a template beside a tokenizer; earlier it was a value in ``tokenizer_config.json``."""

GENERATED = ("\ufdd0", "\ufdd1")
"""Stand around what a template's ``{% generation %}`` says a model generates; noncharacters, which are in no message."""

_GENERATION = re.compile(r"\{%-?\s*generation\s*-?%\}")


class ChatTemplate:
    """A template that can be rendered.

    Args:
        source: Jinja.
        place: where it was read, for errors.

    Raises:
        DataError: it is no Jinja.
    """

    def __init__(self, source: str, place: str) -> None:
        self.source = source
        try:
            self._compiled = _environment().from_string(source)
        except (jinja2.TemplateError, RecursionError) as error:
            raise DataError(
                f"{place}: the chat template is no valid Jinja ({type(error).__name__}); repair it"
            ) from None

    @cached_property
    def marks_generation(self) -> bool:
        """Whether it says itself what a model generates (``{% generation %}``)."""
        return _GENERATION.search(self.source) is not None

    def render(self, messages: Sequence[Mapping[str, str]], tokens: Mapping[str, str]) -> str | None:
        """The conversation as text, with `GENERATED` around what the template marks; None where the template gives up on it.

        A template may refuse messages (two of a user in a row), or fail on what it did not think of. As an error, one text would
        decide whether there is a release.

        Args:
            messages: objects with ``role`` and ``content``.
            tokens: the tokenizer's special tokens by role, such as ``eos_token``.
        """
        try:
            written = self._compiled.render(
                messages=[dict(message) for message in messages],
                tools=None,
                documents=None,
                add_generation_prompt=False,
                **tokens,
            )
            written.encode()  # half a surrogate is no text
            return written
        except Exception as error:
            if is_out_of_memory(error):
                raise
            return None


def read_chat_template(path: Path) -> str | None:
    """The source of the template in a tokenizer's folder (``chat_template.jinja``, else in ``tokenizer_config.json``), or None.

    Of several named ones it is that of the name ``default``.

    Args:
        path: a folder, or a single ``tokenizer.json``, which has none.

    Raises:
        DataError: it cannot be read.
    """
    file, config = path / TEMPLATE_FILE, path / "tokenizer_config.json"
    try:
        if file.is_file():
            return file.read_text(encoding="utf-8")
        stated = json.loads(config.read_text(encoding="utf-8")).get("chat_template") if config.is_file() else None
    except (OSError, ValueError, AttributeError):
        raise DataError(f"{path}: the chat template there cannot be read; save the tokenizer again") from None
    if isinstance(stated, list):
        stated = next(
            (one.get("template") for one in stated if isinstance(one, dict) and one.get("name") == "default"), None
        )
    return stated if isinstance(stated, str) else None


def own_template() -> str:
    """The chat template of our own WordPiece."""
    return default_template(OWN_NAMES["cls_token"], OWN_NAMES["sep_token"])


def default_template(start: str, end: str) -> str:
    """The template of a tokenizer without one: each message is its role, a line break, its content and the token that ends a row.

    Args:
        start: the token that begins a row.
        end: the one that ends it.
    """
    return (
        f"{{{{- {json.dumps(start)} }}}}\n"
        "{%- for message in messages %}\n"
        f"    {{{{- message['role'] + ':\\n' + message['content'] + {json.dumps(end)} + '\\n' }}}}\n"
        "{%- endfor %}\n"
        "{%- if add_generation_prompt %}\n"
        "    {{- 'assistant:\\n' }}\n"
        "{%- endif %}\n"
    )


class _GenerationTag(jinja2.ext.Extension):
    """``{% generation %} ... {% endgeneration %}``, as in transformers; what is in it is marked."""

    tags = {"generation"}  # noqa: RUF012 - jinja2 declares it so

    def parse(self, parser: jinja2.parser.Parser) -> jinja2.nodes.Node:
        """The block as a call of `_marked`."""
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        return jinja2.nodes.CallBlock(self.call_method("_marked"), [], [], body).set_lineno(line)

    def _marked(self, caller: Callable[[], str]) -> str:
        return f"{GENERATED[0]}{caller()}{GENERATED[1]}"


def _environment() -> TemplateSandbox:
    environment = TemplateSandbox([_GenerationTag, "jinja2.ext.loopcontrols"])
    environment.filters["tojson"] = _as_json
    environment.add_global("raise_exception", _raise)
    return environment


def _as_json(value: Any, ensure_ascii: bool = False, indent: int | None = None, **options: Any) -> str:
    """A value as JSON without HTML's escapes, which Jinja's own filter has."""
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, **options)


def _raise(message: str) -> NoReturn:
    raise jinja2.TemplateRuntimeError(message)
