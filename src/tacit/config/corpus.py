"""Where a corpus is and how it is read: the sections ``private`` and ``public``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, ClassVar

from pydantic import Field

from tacit.config.base import MOST, Count, Options, name_in
from tacit.config.kinds import KINDS, one_of
from tacit.corpus.places import Place
from tacit.errors import UsageError

if TYPE_CHECKING:
    from tacit.config.run import RunConfig
    from tacit.corpus.source import Source

__all__ = ["CorpusOptions", "PublicCorpusOptions", "TurnsOptions", "check_chats"]

CHAT = "chat"
"""A value of ``format`` that names no layout of a file, but what its records are."""

PlaceInTurn = Annotated[int, Field(ge=0, le=MOST, strict=True)] | str
"""Where something is in a turn: a place in a list, from 0, or a field of an object."""


class TurnsOptions(Options):
    """How a list of turns becomes the text of a record, one turn a line. A place is a number, from 0, where a turn is a list, or a
    field where it is an object.

    Args:
        text: the place of a turn's text.
        speaker: the place of its speaker, whose name is put before the text as in ``USR: Hello.``; null: the text alone.
        names: words for speakers; other speakers keep their own.
    """

    text: PlaceInTurn = 1
    speaker: PlaceInTurn | None = 0
    names: dict[str, str] = Field(default={"U": "USR", "S": "SYS"})


def _formats() -> list[str]:
    from tacit.corpus.formats import READERS  # imports pyarrow

    return ["auto", CHAT, *READERS]


class CorpusOptions(Options):
    """Where a corpus is and how its records are read.

    Args:
        path: a file, a directory with its sub-directories, or a pattern of files in one; here, or in an object store (``s3://``,
            ``gs://``, ``abfs://``, ``hdfs://``, docs/scale.md). ``${NAME}`` and ``${NAME:-default}`` are taken from the environment.
        format: how the files are read; ``auto`` goes by each file's ending. ``chat``: as ``auto``, and the records are conversations
            (``messages_field: messages``).
        text_field: field with the text or, with ``turns``, with the list of turns.
        id_field: field with the document's id; not given: the id is file and line.
        user_field: field with the person's id; required for ``unit: user``.
        max_record_bytes: a longer record is refused.
        limit: read this many records and stop; see docs/sharp-edges.md before you use it on private text.
        turns: how a list of turns becomes text, one turn a line; ``{}`` takes every default; not given: the field holds the text.
        messages_field: field with a conversation, a list of messages with ``role`` (``system``, ``developer``, ``user``,
            ``assistant`` or ``tool``) and ``content``, in JSON or Parquet; instead of ``text_field``. The tokenizer's chat template
            makes rows of it, and the loss is on what the assistant says.
        prompt_field: field with a prompt, in JSON, CSV or Parquet; instead of ``text_field``, with ``response_field``.
        response_field: field with the response, which stands on a new line after the prompt; the loss is on the response.
    """

    added_later: ClassVar = frozenset({"messages_field", "prompt_field", "response_field"})

    path: str
    format: Annotated[str, name_in(_formats)] = "auto"
    text_field: str = "text"
    id_field: str | None = None
    user_field: str | None = None
    max_record_bytes: Count = 1_000_000
    limit: Count | None = None
    turns: TurnsOptions | None = None
    messages_field: str | None = None
    prompt_field: str | None = None
    response_field: str | None = None

    @property
    def messages(self) -> str | None:
        """The field with a conversation; None: the records are none."""
        return "messages" if self.messages_field is None and self.format == CHAT else self.messages_field

    @property
    def read_field(self) -> str:
        """The field that holds the text, or what a text is made of."""
        return self.messages or self.prompt_field or self.text_field

    @property
    def is_chat(self) -> bool:
        """Whether the loss is on a part of each record: the assistant's messages, or the response."""
        return self.messages is not None or self.prompt_field is not None

    @property
    def resolved_path(self) -> Place:
        """Where it lies, with ``${NAME}`` and ``${NAME:-default}`` replaced from the environment."""
        return self.located_corpus(self.path)

    @property
    def source(self) -> Source:
        """The corpus as readers take it."""
        from tacit.corpus.source import Source  # imports pyarrow
        from tacit.corpus.turns import Turns

        turns = self.turns
        return Source(
            path=self.resolved_path,
            format="auto" if self.format == CHAT else self.format,
            text_field=self.text_field,
            id_field=self.id_field,
            user_field=self.user_field,
            max_record_bytes=self.max_record_bytes,
            limit=self.limit,
            turns=None if turns is None else Turns(turns.text, turns.speaker, turns.names),
            messages_field=self.messages,
            prompt_field=self.prompt_field,
            response_field=self.response_field,
        )


class PublicCorpusOptions(CorpusOptions):
    """A public corpus.

    Args:
        times: training reads its records as if each were there so many times, so that a small corpus near the private text is not
            lost in a large one, and so does the unigram of the evaluation. A vocabulary counts its words once, and no copy of a
            held-out record is trained on.
    """

    added_later: ClassVar = CorpusOptions.added_later | {"times"}

    times: Count = 1


def check_chats(config: RunConfig) -> None:
    """Conversations are read in one way, by a model that predicts next tokens, and nothing cuts them into pieces."""
    for option, corpus in (("private", config.private), *((f"public.{i}", one) for i, one in enumerate(config.public))):
        _check_fields(option, corpus)
        if corpus.is_chat and not config.model.is_causal:
            causal = one_of(kind for kind in KINDS.values() if kind.is_causal)
            raise UsageError(
                f"{option}: messages and responses are for a model that writes on, and model.kind is {config.model.kind}: use a "
                f"{causal}, or text_field with turns"
            )
    if config.adaptive is not None and any(corpus.is_chat for corpus in config.public):
        raise UsageError(
            "adaptive scores plain texts so far, and a public corpus has conversations: leave one of the two out"
        )
    if not config.private.is_chat:
        return
    cutting = {
        "screening": config.screening is not None,
        "marking": config.marking is not None,
        "adaptive": config.adaptive is not None,
        "privacy.unit: tuple": not isinstance(config.privacy.unit, str),
        "audit.membership": config.audit is not None and config.audit.membership is not None,
    }
    for name in (name for name, asked in cutting.items() if asked):
        raise UsageError(
            f"{name} reads plain texts so far, and the records of private are conversations: leave it out, or read them as text with "
            "text_field (of messages: turns: {speaker: role, text: content})"
        )


def _check_fields(option: str, corpus: CorpusOptions) -> None:
    if (corpus.prompt_field is None) != (corpus.response_field is None):
        raise UsageError(f"{option}: prompt_field and response_field go together; give both, or neither")
    if corpus.messages is not None and corpus.prompt_field is not None:
        raise UsageError(
            f"{option}: a record is a conversation or a prompt with its response; leave out prompt_field or messages"
        )
    if corpus.is_chat and (corpus.text_field != "text" or corpus.turns is not None):
        beside = "turns" if corpus.turns is not None else "text_field"
        raise UsageError(
            f"{option}: {beside} is for plain text, and these records have messages or responses; leave it out"
        )
