"""From conversations to tokens, and which of them a model learns to say.

A conversation is written by the tokenizer's chat template, with two things that `apply_chat_template` does not give by itself:

- *Special tokens are the template's alone.* A user who writes ``<|im_end|>`` has written a text of ten characters. Contents are
  rendered with such words broken by a noncharacter, so what is found afterwards the template has written. It gets a stand-in, a word
  of a copy of the tokenizer that reads special tokens as text, and the whole is encoded at once, so that all else is cut as ever.
- *Which tokens are the assistant's.* A template may say so (``{% generation %}``). Else the assistant's contents are rendered a
  second time with noncharacters around them; without these it must be the same text. With a content counts the token that ends the
  turn: a special token, or a line break, where it comes next.

Of texts without a special token that is spelled in them the ids are those of `apply_chat_template` (tests/vocabulary/test_chats.py).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from tokenizers import AddedToken, Encoding, Tokenizer

from tacit.corpus.chats import Exchange, Message, chat_text, exchange_of, messages_of
from tacit.errors import DataError
from tacit.vocabulary.chat_template import GENERATED, ChatTemplate
from tacit.vocabulary.encode import encode_texts
from tacit.vocabulary.rendering import RenderedApart
from tacit.vocabulary.special import SpecialTokens

__all__ = ["ChatEncoder", "CountedIds", "check_template"]

_BREAK = "\ufdd2"
_STAND_IN = ("\ufdd3", "\ufdd4")
_MARK = re.compile("[\ufdd0\ufdd1]")
_BEGIN, _END = GENERATED
_NEXT_LINE = re.compile(r"[ \t]*\n")

_PROBE = (Message("user", "Is it so?"), Message("assistant", "It is so."))


@dataclass(frozen=True)
class CountedIds:
    """The tokens of a text, those that begin and end it included; private.

    Args:
        ids: token ids.
        counted: which of them a model learns to say.
    """

    ids: tuple[int, ...]
    counted: tuple[bool, ...]

    def __repr__(self) -> str:
        return "CountedIds(<private>)"

    def windows(self, length: int) -> Iterator[tuple[Sequence[int], Sequence[bool]]]:
        """Rows of at most ``length`` positions that together predict every counted token once; those without one are left out.

        A row begins with the last token of the one before it, which counts there alone.
        """
        for start in range(0, max(1, len(self.ids) - 1), length - 1):
            counted = [False, *self.counted[start + 1 : start + length]]
            if any(counted):
                yield self.ids[start : start + length], counted


_NOTHING = CountedIds((), ())


class ChatEncoder:
    """Encodes conversations, and prompts with their responses.

    Args:
        tokenizer: the run's own.
        special: its special tokens.
        names: their names by role, which templates ask for (``eos_token``).
        template: how messages are written; one that somebody gave, in a child (`rendered_apart`).
    """

    def __init__(
        self,
        tokenizer: Tokenizer,
        special: SpecialTokens,
        names: Mapping[str, str],
        template: ChatTemplate | RenderedApart,
    ) -> None:
        self._special = special
        self._names = names
        self._original = tokenizer.to_str()
        self._template = template
        self._tokenizer, self._id_of = _with_stand_ins(tokenizer, names)
        self._stand_in = {token: _stand_in(number) for token, number in self._id_of.items()}
        self._ids = {self._tokenizer.token_to_id(_stand_in(number)): number for number in self._id_of.values()}
        longest_first = sorted(self._id_of, key=len, reverse=True)
        self._token = re.compile("|".join(map(re.escape, longest_first)) or "(?!)")
        self._turn_end = re.compile(rf"\s*(?:{self._token.pattern})")

    def encode(self, texts: Sequence[str]) -> list[CountedIds | None]:
        """The tokens of each text that `tacit.corpus.chats` has made; None for any other text.

        A conversation has none that its template gives up on, whose contents it changes in ways that cannot be followed, or whose
        special tokens hang on what is said. So has a text that the tokenizer gives up on.
        """
        found = [self._written(text) for text in texts]
        encodings = iter(encode_texts(self._tokenizer, [one.text for one in found if one is not None], offsets=True))
        return [None if one is None else self._counted(one, next(encodings)) for one in found]

    def as_transformers(self, messages: Sequence[Message]) -> list[int]:
        """The ids of messages in which nobody spells a special token, as `apply_chat_template` reads them off the whole text."""
        plain = Tokenizer.from_str(self._original)
        plain.add_special_tokens(list(self._names.values()))
        rendered = _MARK.sub("", self._render(messages) or "")
        return plain.encode(rendered, add_special_tokens=False).ids

    def _written(self, text: str) -> _Written | None:
        messages, exchange = messages_of(text), exchange_of(text)
        if exchange is not None:
            return _of_exchange(exchange)
        return None if messages is None else self._of_messages(messages) or _Written("", (), None)

    def _of_messages(self, messages: Sequence[Message]) -> _Written | None:
        """The conversation as the template writes it, with stand-ins for special tokens; None where that cannot be told."""
        messages = [message._replace(content=self._token.sub(_broken, message.content)) for message in messages]
        rendered = self._render(messages)
        if rendered is None or not self._has_tokens_of_its_shape(rendered, messages):
            return None
        marked = rendered if self._template.marks_generation else self._with_marks(rendered, messages)
        return None if marked is None else self._with_tokens(marked)

    def _render(self, messages: Sequence[Message]) -> str | None:
        return self._template.render([message._asdict() for message in messages], self._names)

    def _has_tokens_of_its_shape(self, rendered: str, messages: Sequence[Message]) -> bool:
        """Whether the special tokens are those of a conversation in which the same roles say other words.

        Else what somebody says has made one, as where a template writes ``<|`` before a content that begins with ``im_end|>``.
        """
        others = [message._replace(content="a") if message.content.strip() else message for message in messages]
        shape = self._render(others)
        return shape is not None and self._tokens_in(rendered) == self._tokens_in(shape)

    def _tokens_in(self, rendered: str) -> list[str]:
        return self._token.findall(_MARK.sub("", rendered))

    def _with_marks(self, rendered: str, messages: Sequence[Message]) -> str | None:
        """The rendered text with marks around the assistant's contents: as they are, else without blanks around them, which some
        templates strip, else behind the thoughts in them, which some leave out.
        """
        for around in (_around, _around_words, _around_answer):
            marked = self._render(
                [m._replace(content=around(m.content)) if m.role == "assistant" else m for m in messages]
            )
            if marked is not None and _MARK.sub("", marked) == rendered and _in_pairs(marked):
                return self._with_turn_ends(marked)
        return None

    def _with_turn_ends(self, marked: str) -> str:
        """Each mark behind a content moved behind what ends the turn."""
        first, *others = marked.split(_END)
        for rest in others:
            end = self._turn_end.match(rest) or _NEXT_LINE.match(rest)
            place = 0 if end is None else end.end()
            first += rest[:place] + _END + rest[place:]
        return first

    def _with_tokens(self, marked: str) -> _Written | None:
        """Special tokens replaced by stand-ins, and marks by places; None where the marks are no pairs, as of a template's own."""
        if not _in_pairs(marked):
            return None
        text, places = "", list[int]()
        for number, piece in enumerate(re.split(f"({_MARK.pattern})", marked)):
            if number % 2 == 0:
                text += self._token.sub(lambda found: self._stand_in[found[0]], piece).replace(_BREAK, "")
            else:
                places.append(len(text))
        return _Written(text, tuple(zip(places[::2], places[1::2], strict=True)), None)

    def _counted(self, written: _Written, encoding: Encoding) -> CountedIds:
        """Ids of the tokenizer itself; what a special token is spelled with in a content is an unknown one, as in every text."""
        offsets = [
            _of_stand_in(written.text, first) if number in self._ids else (first, last)
            for number, (first, last) in zip(encoding.ids, encoding.offsets, strict=True)
        ]
        counted_of = _overlapping(offsets, written.ranges)
        own_ids = {
            number: [self._ids[number]] if number in self._ids else self._special.text_ids([number])
            for number in set(encoding.ids)
        }
        pairs = [
            (own, counted) for number, counted in zip(encoding.ids, counted_of, strict=True) for own in own_ids[number]
        ]
        ids, counted = [own for own, _ in pairs], [counted for _, counted in pairs]
        if written.exchange is None:
            return CountedIds(tuple(ids), tuple(counted))
        return CountedIds((self._special.start, *ids, self._special.end), (False, *counted, True)) if ids else _NOTHING


@dataclass(frozen=True)
class _Written:
    """A text as it is encoded; private.

    Args:
        text: special tokens are stand-ins.
        ranges: from where to where it counts, in characters.
        exchange: where it is a prompt with its response, whose row has the tokens that begin and end one.
    """

    text: str
    ranges: tuple[tuple[int, int], ...]
    exchange: Exchange | None


def check_template(encoder: ChatEncoder, place: str) -> None:
    """Whether a template can be used at all, on a conversation that everybody knows.

    Raises:
        DataError: it gives up on one question and its answer, or nobody can tell there which tokens are the answer's.
    """
    (found,) = encoder.encode([chat_text(_PROBE)])
    if found is not None and found.ids and list(found.ids) != encoder.as_transformers(_PROBE):
        raise DataError(
            f"{place}: a special token of the chat template is read in another way when the same word in a message is text; set "
            "normalized: false for it in tokenizer.json"
        )
    if found is None or not any(found.counted[1:]):
        raise DataError(
            f"{place}: the chat template cannot write a user's message and the assistant's answer so that the answer is found in it; "
            "put the answer between {% generation %} and {% endgeneration %}, or use another template"
        )


def _of_exchange(exchange: Exchange) -> _Written:
    before = f"{exchange.prompt}\n"
    whole = before + exchange.response
    return _Written(whole, ((len(before), len(whole)),), exchange)


def _in_pairs(marked: str) -> bool:
    """Whether a mark that ends follows each that begins, and no other."""
    marks = _MARK.findall(marked)
    return marks == [_BEGIN, _END] * (len(marks) // 2)


def _around(content: str) -> str:
    return f"{_BEGIN}{content}{_END}" if content else ""


def _around_words(content: str) -> str:
    words = content.strip()
    place = content.find(words)
    return f"{content[:place]}{_around(words)}{content[place + len(words) :]}"


def _around_answer(content: str) -> str:
    thought, end, answer = content.rpartition("</think>")
    return f"{thought}{end}{_around_words(answer)}"


def _broken(found: re.Match[str]) -> str:
    return _BREAK.join(found[0]) + _BREAK


def _stand_in(number: int) -> str:
    return f"{_STAND_IN[0]}{number}{_STAND_IN[1]}"


def _with_stand_ins(tokenizer: Tokenizer, names: Mapping[str, str]) -> tuple[Tokenizer, dict[str, int]]:
    """A copy that reads special tokens as text, with a word for each of them; and their ids."""
    marked = {token.content: token for token in tokenizer.get_added_tokens_decoder().values() if token.special}
    tokens = {name: marked.get(name, AddedToken(name, normalized=False)) for name in (*marked, *names.values())}
    ids = {name: number for name in tokens if (number := tokenizer.token_to_id(name)) is not None}
    copy = Tokenizer.from_str(tokenizer.to_str())
    copy.encode_special_tokens = True
    copy.no_padding()
    copy.no_truncation()
    copy.add_tokens(
        [
            AddedToken(
                _stand_in(number),
                lstrip=tokens[name].lstrip,
                rstrip=tokens[name].rstrip,
                normalized=False,
                special=False,
            )
            for name, number in ids.items()
        ]
    )
    return copy, ids


def _of_stand_in(text: str, first: int) -> tuple[int, int]:
    """Where a stand-in is, without the blanks that some special tokens take from the text beside them."""
    start = text.index(_STAND_IN[0], first)
    return start, text.index(_STAND_IN[1], start) + 1


def _overlapping(offsets: Sequence[tuple[int, int]], ranges: Sequence[tuple[int, int]]) -> list[bool]:
    """Which tokens count: from the first one that has a character of a range to the last, those without characters between too."""
    first_N, last_N = np.array(offsets, dtype=np.int64).reshape(-1, 2).T
    counted_N = np.zeros(len(offsets), dtype=bool)
    for start, end in ranges:
        inside = np.flatnonzero((first_N < end) & (last_N > start) & (first_N < last_N))
        if len(inside):
            counted_N[inside[0] : inside[-1] + 1] = True
    return counted_N.tolist()
