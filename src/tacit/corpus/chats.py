"""Conversations and instructions as texts that keep who said what, so that all that reads a unit's texts reads these too.

A conversation is a list of messages with ``role`` and ``content``, as Hugging Face has them. Its text is

    \\x1euser:\\x1f Hello\\n\\x1eassistant:\\x1f Hi, how can I help?\\n

and that of a prompt with its response is ``\\x1d`` prompt ``\\n\\x1d`` response. The control characters stand in no message (the
readers put blanks in their place), so two different conversations never have one text. To whom counts words they are nothing.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from tacit.errors import DataError

__all__ = [
    "ROLES",
    "Exchange",
    "Message",
    "answer_of",
    "chat_text",
    "exchange_of",
    "messages_of",
    "read_chat",
    "read_exchange",
]

ROLES = ("system", "developer", "user", "assistant", "tool")
"""Who may say a message. A closed list: templates write roles among their special tokens."""

_MESSAGE, _CONTENT, _PART = "\x1e", ":\x1f ", "\x1d"
_RESERVED = re.compile("[\x1d-\x1f\ufdd0-\ufdef]")
"""The separators above, and noncharacters, with which `tacit.vocabulary.chats` marks places. No text needs them."""


class Message(NamedTuple):
    """One message; private."""

    role: str
    content: str

    def __repr__(self) -> str:
        return "Message(<private>)"


class Exchange(NamedTuple):
    """A prompt and its response; private."""

    prompt: str
    response: str

    def __repr__(self) -> str:
        return "Exchange(<private>)"


def read_chat(values: Any, place: str, messages_field: str) -> str:
    """The text of what a record holds in its field ``messages_field``; other fields of a message are not looked at.

    Args:
        place: file and line, for errors, which never show a value.

    Raises:
        DataError: it is no list of messages with a role of `ROLES` and a text.
    """
    if not isinstance(values, list):
        raise DataError(f"{place}: the field {messages_field!r} is no list of messages; set the option messages_field")
    return chat_text([_message(value, f"{place}, message {number}") for number, value in enumerate(values, start=1)])


def _message(value: Any, place: str) -> Message:
    if not isinstance(value, Mapping) or not {"role", "content"} <= value.keys():
        raise DataError(f'{place}: a message must be an object such as {{"role": "user", "content": "..."}}')
    role, content = value["role"], value["content"]
    if role not in ROLES:
        raise DataError(f"{place}: the role is none of {', '.join(ROLES)}; rename it in the file")
    if not isinstance(content, str):
        raise DataError(f"{place}: the content is not a string; only messages of plain text can be read")
    return Message(role, content)


def chat_text(messages: Sequence[Message]) -> str:
    """The text of a conversation.

    >>> chat_text([Message("user", "Hello")])
    '\\x1euser:\\x1f Hello\\n'
    """
    return "".join(f"{_MESSAGE}{message.role}{_CONTENT}{_clean(message.content)}\n" for message in messages)


def read_exchange(prompt: str, response: str) -> str:
    """The text of a prompt and its response."""
    return f"{_PART}{_clean(prompt)}\n{_PART}{_clean(response)}"


def messages_of(text: str) -> list[Message] | None:
    """The messages of a text of `chat_text`; None: it is none."""
    if not text.startswith(_MESSAGE):
        return None
    parts = (piece.removesuffix("\n").partition(_CONTENT) for piece in text[1:].split(_MESSAGE))
    return [Message(role, content) for role, _, content in parts]


def exchange_of(text: str) -> Exchange | None:
    """Prompt and response of a text of `read_exchange`; None: it is none."""
    parts = text.split(_PART)
    return Exchange(parts[1].removesuffix("\n"), parts[2]) if len(parts) == 3 and not parts[0] else None


def answer_of(text: str) -> str:
    """What a model learns to say: the response, the assistant's messages a line each, or all of a text that is neither."""
    exchange, messages = exchange_of(text), messages_of(text)
    if exchange is not None:
        return exchange.response
    if messages is None:
        return text
    return "\n".join(message.content for message in messages if message.role == "assistant")


def _clean(text: str) -> str:
    return _RESERVED.sub(" ", text)
