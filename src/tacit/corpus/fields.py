"""A record from named fields, as JSON, CSV, Parquet and Arrow have them. No error here holds a value."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from tacit.corpus.chats import read_chat, read_exchange
from tacit.corpus.columns import listed
from tacit.corpus.lines import too_long
from tacit.corpus.places import Place
from tacit.corpus.records import Record, identity, unicode_bytes
from tacit.corpus.turns import dialogue_text
from tacit.errors import DataError, UsageError

if TYPE_CHECKING:
    from tacit.corpus.source import Source  # asks which formats there are

__all__ = ["checked_text", "no_field", "record_of", "refuse_fields", "wanted_fields"]


def wanted_fields(source: Source) -> list[tuple[str, str]]:
    """(option, field) of the fields that the source asks for."""
    instead = {
        "messages_field": source.messages_field,
        "prompt_field": source.prompt_field,
        "response_field": source.response_field,
    }
    text = {"text_field": source.text_field} if set(instead.values()) == {None} else instead
    named = {**text, "id_field": source.id_field, "user_field": source.user_field}
    return [(option, name) for option, name in named.items() if name is not None]


def record_of(fields: Mapping[str, Any], default_id: str, place: str, source: Source) -> Record:
    """A record from named fields, each checked.

    Raises:
        DataError: a field is missing or of a wrong type, or the text is over the cap or not Unicode.
    """
    document_id = default_id if source.id_field is None else _identity(fields, "id_field", source.id_field, place)
    user_id = None if source.user_field is None else _identity(fields, "user_field", source.user_field, place)
    return Record(document_id, user_id, checked_text(_text(fields, place, source), place, source))


def _text(fields: Mapping[str, Any], place: str, source: Source) -> str:
    """The text of a record, or that of its conversation, or of its prompt and response."""
    if source.messages_field is not None:
        values = _field(fields, "messages_field", source.messages_field, place)
        return read_chat(values, place, source.messages_field)
    if source.prompt_field is not None and source.response_field is not None:
        prompt = _string(fields, "prompt_field", source.prompt_field, place)
        return read_exchange(prompt, _string(fields, "response_field", source.response_field, place))
    if source.turns is not None:
        values = _field(fields, "text_field", source.text_field, place)
        return dialogue_text(values, source.turns, place, source.text_field)
    return _string(fields, "text_field", source.text_field, place, ", or turns for a list of turns")


def _string(fields: Mapping[str, Any], option: str, name: str, place: str, otherwise: str = "") -> str:
    value = _field(fields, option, name, place)
    if not isinstance(value, str):
        raise DataError(f"{place}: the field {name!r} is not a string; set the option {option}{otherwise}")
    return value


def _field(fields: Mapping[str, Any], option: str, name: str, place: str) -> Any:
    if name not in fields:
        raise no_field(option, name, place)
    return fields[name]


def no_field(option: str, name: str, place: str, others: Sequence[str] = ()) -> DataError:
    """The error of a field that is not there, with the names that are (none where these may be text)."""
    there = f"a field that is there: {listed(others)}" if others else "a field that is there"
    return DataError(f"{place}: there is no field {name!r}; set the option {option} to {there}")


def _identity(fields: Mapping[str, Any], option: str, name: str, place: str) -> str:
    return identity(_field(fields, option, name, place), option, name, place)


def checked_text(text: str, place: str, source: Source) -> str:
    """The text.

    Raises:
        DataError: it is over the cap, or not Unicode.
    """
    if unicode_bytes(text, place) > source.max_record_bytes:
        raise DataError(too_long(place, source.max_record_bytes))
    return text


def refuse_fields(path: Place, source: Source) -> None:
    """Refuse a source that asks for a field, where the format has none.

    Raises:
        UsageError: the source asks for one.
    """
    asked = {
        "id_field": source.id_field,
        "user_field": source.user_field,
        "turns": source.turns,
        "messages_field": source.messages_field,
        "prompt_field": source.prompt_field,
    }
    for option, value in asked.items():
        if value is not None:
            raise UsageError(f"{path}: a file of this format has no fields; leave out the option {option}")
