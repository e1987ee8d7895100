"""The first configuration of somebody's own text: commented YAML, from a few answers. What `tacit init` writes.

Every number in it comes from the answers, which are public statements; nothing comes from the text.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from typing import Literal

__all__ = ["SCHEMA_LINE", "GivenModel", "Start", "StartKind", "written"]

StartKind = Literal["bert", "gpt2", "lstm"]

SCHEMA_LINE = "# yaml-language-server: $schema={}"
"""The first line of a configuration; editors read from it which options there are."""

_MODELS: dict[StartKind, str] = {
    "bert": "{kind: bert, layers: 2, width: 128, heads: 2, length: 64, initializer: scaled}",
    "gpt2": "{kind: gpt2, layers: 2, width: 128, heads: 4, length: 64}",
    "lstm": "{kind: lstm, layers: 1, width: 200, length: 48}",
}
_AUDITS: dict[StartKind, str] = {
    "bert": "{canaries: 4, probability: 0.3, control: true}",
    "gpt2": "{canaries: 10, copies: 20, control: true}",
    "lstm": "{canaries: 10, copies: 20, control: true}",
}


LINES = "a record is a line of a file; where it should be a whole file, write JSON lines with an object a file"
"""Of plain text, for the configuration and for whoever asked for it."""


@dataclass(frozen=True)
class Start:
    """What has to be known of a text and of its owner's wishes.

    Args:
        title: heading of the report.
        run: the run folder.
        schema: where the JSON Schema of configurations is.
        private: the private corpus.
        public: the public corpora.
        text: the field with the text; None where the format has no fields. The public corpora have a field of this name, or ``text``.
        document: the field with a document's id.
        user: the field with a person's id.
        units: how many units there are, as a public statement.
        epsilon: the joint budget.
        model: the kind of a new model; of a given one the kind that is asked the same.
        messages: the field with a conversation, where the records are such; in place of ``text``.
        given: the model that is given, if one is; it has its own tokenizer, and is trained by an adapter.
        lines: whether the format is plain text, of which each line is a record.
    """

    title: str
    run: str
    schema: str
    private: str
    public: tuple[PublicText, ...]
    text: str | None
    document: str | None
    user: str | None
    units: int
    epsilon: float
    model: StartKind
    given: GivenModel | None = None
    messages: str | None = None
    lines: bool = False

    @property
    def unit(self) -> str:
        """The largest unit that the fields allow."""
        return "user" if self.user is not None else "document" if self.document is not None else "record"

    @property
    def delta(self) -> float:
        """A power of ten between 1/100 and 1/10 of one over the number of units."""
        return 10.0 ** -(math.floor(math.log10(self.units)) + 2)

    @property
    def expected_batch(self) -> int:
        """A quarter of the units, and no more than 1,024: large batches make noise small beside the gradient."""
        return max(1, min(1024, self.units // 4))

    @property
    def steps(self) -> int:
        """So many that a unit is drawn 15 times on average, from 60 to 500."""
        return max(60, min(500, round(15 * self.units / self.expected_batch)))


@dataclass(frozen=True)
class PublicText:
    """A public corpus, and its field with the text; None: the default, or no fields."""

    path: str
    text: str | None


@dataclass(frozen=True)
class GivenModel:
    """A model to start from: its folder, positions of a row, and whether the user has to say that it is public."""

    folder: str
    length: int
    declared: bool


def written(start: Start) -> str:
    """The configuration as commented YAML."""
    corpus = [f"path: {_said(start.private)}"]
    corpus += [f"{option}: {_said(name)}" for option, name in _fields(start) if name is not None]
    lines = [
        SCHEMA_LINE.format(start.schema),
        "# Written by `tacit init`, which took names of fields and no text. Relative paths are relative to this file.",
        "# All options are in docs/options.md. `tacit plan` says what this one costs, and reads one record.",
        f"title: {_said(start.title)}",
        f"run: {_said(start.run)}   # everything that is made goes here; one folder is one release",
        "",
        "privacy:",
        "  # What is protected as one: record (a row), document (all rows with one id), user (all rows of one person). Choose the",
        "  # largest thing that must not leak: under record, somebody with 30 rows is protected 30 times less.",
        f"  unit: {start.unit}",
        "  # How many units there are, as you would tell it in public: a round number is best. It is never counted.",
        f"  units: {start.units}",
        "  # epsilon: smaller is stronger. 1 is strong, 8 excludes little by itself.",
        "  # delta: the chance that the bound fails; far below one over the number of units.",
        f"  budget: {{epsilon: {_number(start.epsilon)}, delta: {_number(start.delta)}}}",
        "",
        "# The text that must not leak. id_field and user_field name columns; user_field is needed for unit: user.",
        *([f"# {LINES[0].upper()}{LINES[1:]}."] if start.lines else []),
        "private:",
        *(f"  {line}" for line in corpus),
        "",
        *(_begun_anew(start) if start.given is None else _begun_with(start, start.given)),
        "  - name: private",
        "    plan: dp",
        "    stream: private",
        f"    steps: {start.steps}               # few steps with large batches are better than the reverse",
        f"    expected_batch: {start.expected_batch}     # units in a step, on average; with more, the noise matters less",
        "    clip_norm: 0.5          # bound on what one unit adds to a step; noise grows with it, so rather too small",
        "    sequences_per_unit: 2   # rows of a unit in a step; more for long units",
        f"    learning_rate: {'1.0e-3' if start.given is None else '5.0e-3'}",
        "",
        "# This share of the units is kept from training, and scored with noise.",
        "evaluation: {held_out: 0.1}",
        "",
        "# The run attacks its own model: canaries are planted and looked for. control: a model without noise shows that the attack",
        "# can find them; it takes time, and stays private.",
        f"audit: {_AUDITS[start.model]}",
    ]
    return "\n".join(lines) + "\n"


def _begun_anew(start: Start) -> list[str]:
    """Public text, a vocabulary, a new model, and the phases up to the private one."""
    public = [f"  - {{{_public(text)}}}" for text in start.public]
    return [
        "# Text that anybody may read, as near to yours as you can find: it costs no privacy, and the model learns most of its",
        "# language here. More, and nearer, public text helps more than a larger epsilon.",
        "public:",
        *public,
        "",
        "# The words of the tokenizer. public_corpora: words of the public text are known for free, and the budget pays for others.",
        "# max_words: so many different words of a unit count; about as many as a usual unit has. size: pieces of the tokenizer.",
        "vocabulary: {method: weighted, public_corpora: true, max_words: 128, size: 4096, epsilon_share: 0.3}",
        "",
        "# kind: bert fills in masked words (for classification and tagging), gpt2 and lstm write on. Noise hurts small ones least.",
        f"model: {_MODELS[start.model]}",
        "",
        "phases:",
        "  # First the public text. More steps are better until the public text is learned by heart; they cost time alone.",
        "  - {name: public, plan: plain, stream: public, steps: 2000, batch_size: 64, learning_rate: 2.0e-3}",
        "  # Then the private text, with noise that is solved from the budget.",
    ]


def _begun_with(start: Start, given: GivenModel) -> list[str]:
    """A given model, and public text where there is some: it is scored, and no phase needs it."""
    public = [f"  - {{{_public(text)}}}" for text in start.public]
    return [
        *(
            [
                "# Text that anybody may read: the models are scored on it, and show what they write.",
                "public:",
                *public,
                "",
            ]
            if public
            else []
        ),
        "# The model to start from, with its own tokenizer. `public: true` says that it was made from public text alone,",
        "# and knows none of the private text: your statement. Only an adapter (LoRA) is trained: few numbers get noise.",
        "# rank: more learns more and has more noise. length: positions of a row; a longer text becomes several rows.",
        "model:",
        f"  folder: {_said(given.folder)}",
        f"  length: {given.length}",
        *(["  public: true"] if given.declared else []),
        "  adapter: {kind: lora, rank: 8, alpha: 16, targets: all-linear}",
        "",
        "phases:",
        "  # The private text, with noise that is solved from the budget.",
    ]


def _fields(start: Start) -> list[tuple[str, str | None]]:
    return [
        ("text_field", start.text),
        ("messages_field", start.messages),
        ("id_field", start.document),
        ("user_field", start.user),
    ]


def _public(corpus: PublicText) -> str:
    field = "" if corpus.text is None else f", text_field: {_said(corpus.text)}"
    return f"path: {_said(corpus.path)}{field}"


def _said(text: str) -> str:
    """A text in YAML: bare where nobody can read it otherwise, else in quotes."""
    plain = text.replace("/", "").replace("_", "").replace("-", "").replace(".", "").replace(" ", "")
    bare = plain.isascii() and plain.isalnum() and text[0].isalpha() and text == text.strip()
    words = {"true", "false", "null"}
    return text if bare and text.lower() not in words else json.dumps(text, ensure_ascii=False)


def _number(value: float) -> str:
    """A number as YAML 1.1 and 1.2 both read it: 1e-05 would be a text in one of them."""
    said = f"{value:g}"
    return said.replace("e", ".0e") if "e" in said and "." not in said else said
