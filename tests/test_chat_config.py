"""Options of conversations: what they exclude, and that runs without them keep their digest."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tacit.config import RunConfig, parse_config
from tacit.errors import UsageError

from .small import small_values
from .test_screened_run import values as screened_values

GPT2 = {"kind": "gpt2", "layers": 1, "width": 16, "heads": 2, "length": 24}


def chat_values(folder: Path, private: dict[str, Any], **sections: Any) -> dict[str, Any]:
    values = small_values(folder, **{"model": GPT2, "audit": None, **sections})
    values["private"] = {"path": "talks.jsonl", "user_field": "who", **private}
    return values


def test_runs_without_conversations_keep_their_digest(tmp_path: Path) -> None:
    dumped = parse_config(small_values(tmp_path)).model_dump(mode="json")
    for corpus in (dumped["private"], dumped["public"][0]):
        assert not {"messages_field", "prompt_field", "response_field"} & corpus.keys()


def test_a_stored_configuration_is_read_again(tmp_path: Path) -> None:
    digests = set[str]()
    for private in ({"format": "chat"}, {"messages_field": "talk"}, {"prompt_field": "a", "response_field": "b"}, {}):
        config = parse_config(chat_values(tmp_path, private))
        again = parse_config(config.model_dump(mode="json"))
        assert isinstance(again, RunConfig)
        assert again.digest() == config.digest()
        assert again.private.is_chat == bool(private)
        digests.add(config.digest())
    assert len(digests) == 4


def test_format_chat_means_the_field_messages(tmp_path: Path) -> None:
    named = parse_config(chat_values(tmp_path, {"format": "chat", "messages_field": "talk"})).private
    assert (named.messages, named.source.format, named.source.messages_field) == ("talk", "auto", "talk")
    assert parse_config(chat_values(tmp_path, {"format": "chat"})).private.source.messages_field == "messages"


@pytest.mark.parametrize(
    ("private", "message"),
    [
        ({"prompt_field": "a"}, "private: prompt_field and response_field go together"),
        ({"response_field": "a"}, "private: prompt_field and response_field go together"),
        (
            {"format": "chat", "prompt_field": "a", "response_field": "b"},
            "private: a record is a conversation or a prompt",
        ),
        ({"format": "chat", "text_field": "note"}, "private: text_field is for plain text"),
        ({"messages_field": "m", "turns": {}}, "private: turns is for plain text"),
    ],
)
def test_options_that_contradict_each_other(private: dict[str, Any], message: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=message):
        parse_config(chat_values(tmp_path, private))


BERT = {"kind": "bert", "layers": 1, "width": 16, "heads": 2, "length": 24}
MEMBERSHIP = {"canaries": 2, "copies": 2, "digits": 2, "membership": {}}


@pytest.mark.parametrize(
    ("sections", "message"),
    [
        (
            {"model": BERT},
            "private: messages and responses are for a model that writes on, .*use a gpt2, llama or lstm",
        ),
        ({"audit": MEMBERSHIP}, r"audit\.membership reads plain texts so far"),
        (
            {"privacy": {"unit": {"tuple": 16}, "units": 150, "budget": {"epsilon": 9.0, "delta": 1e-4}}},
            "privacy.unit: tuple reads plain texts so far, and the records of private are conversations: leave it out",
        ),
    ],
)
def test_what_conversations_cannot_have_yet(sections: dict[str, Any], message: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=message):
        parse_config(chat_values(tmp_path, {"format": "chat"}, **sections))


def test_screening_needs_plain_text(tmp_path: Path) -> None:
    values = screened_values(tmp_path, model=GPT2, audit=None)
    values["private"] = {"path": "talks.jsonl", "format": "chat"}
    with pytest.raises(UsageError, match="screening reads plain texts so far"):
        parse_config(values)


def test_public_conversations_need_a_causal_model_too(tmp_path: Path) -> None:
    values = small_values(tmp_path, audit=None)
    values["public"][0]["format"] = "chat"
    with pytest.raises(UsageError, match=r"public\.0: messages and responses are for a model that writes on"):
        parse_config(values)
    assert parse_config({**values, "model": GPT2}).public[0].is_chat
