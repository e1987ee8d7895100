"""The model: how it was made, what it is, and how well it predicts."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from tacit.report.schema.values import Count, Facts, Interval, Note, Parameters, Probability, Text

__all__ = ["AdapterFacts", "Example", "ModelFacts", "PhaseRow", "UtilityRow", "VocabularyFacts"]


class VocabularyFacts(Facts):
    """The tokenizer: how its words were chosen, and how many came from the private text through the DP release."""

    method: Text
    size: Count
    released_words: Count
    parameters: Parameters


class AdapterFacts(Facts):
    """What was trained beside a given model.

    ``targets``: the layers that it stands beside; ``merged``: whether the release also holds the whole model.
    """

    kind: Literal["lora"]
    rank: Count
    targets: Text
    parameters: Count
    merged: bool


class ModelFacts(Facts):
    """The released model's shape; ``heads`` is None for a model without attention.

    ``loading_class`` and ``pipeline_tag``: the class of transformers that loads it, and what a model hub calls its task; None where
    transformers does not have the model. ``trained``: which parameters of a given model, where not all and no adapter's.
    ``loading_module``: what must be imported so that transformers has it; None: nothing.
    """

    kind: Text
    layers: Count
    width: Count
    heads: Count | None
    parameters: Count
    max_length: Count
    loading_class: Literal["AutoModelForCausalLM", "AutoModelForMaskedLM"] | None = None
    pipeline_tag: Literal["text-generation", "fill-mask"] | None = None
    loading_module: Literal["tacit.models.lstm"] | None = None
    adapter: AdapterFacts | None = None
    trained: Text | None = None


class PhaseRow(Facts):
    """One training phase, in words."""

    stream: Text
    plan: Text
    steps: Count
    batch: Text
    optimizer: Text


class UtilityRow(Facts):
    """How well one model predicts one text.

    Accuracies lie in [0, 1] (a noisy one is clamped before it gets here), perplexities above 0. An interval is a 95 %
    confidence interval, (low, high).
    """

    corpus: Literal[
        "public held-out text",
        "private held-out units (noisy, in the ledger)",
        "private held-out text (exact, for the curator)",
    ]
    model: Literal["after public phase", "given model", "released model", "unigram", "uniform"]
    masked_token_accuracy: Probability | None = None
    masked_token_accuracy_interval95: Interval | None = None
    perplexity: Annotated[float, Field(gt=0)] | None = None
    perplexity_interval95: Interval | None = None
    perplexity_per_word: Annotated[float, Field(gt=0)] | None = None
    bits_per_byte: Annotated[float, Field(ge=0)] | None = None
    note: Note = ""


class Example(Facts):
    """What the released model writes for a public text, beside the model before the private phases where there is one.

    Args:
        prompt: the beginning of the text, or the text around a gap (``___``).
        text: how the text goes on, or what stands in the gap.
        released: what the released model writes, or its likeliest tokens for the gap.
        before: the same of the model before the private phases.
    """

    prompt: Text
    text: Note
    released: Note
    before: Note | None = None
