"""What a report says of how well the model predicts held-out text."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tacit.config import RunConfig
from tacit.report import schema

__all__ = ["RELEASED_SCORES", "examples", "utility_rows"]

RELEASED_SCORES = ("vocabulary_size", "public", "private", "examples")
"""What a release's report shows of run/private/evaluation.json; the rest is the curator's."""

_CORPORA: dict[str, Any] = {
    "public": "public held-out text",
    "private": "private held-out units (noisy, in the ledger)",
    "curator": schema.CURATOR_TEXT,
}
_MODELS: Sequence[Any] = ("released model", "after public phase", "given model", "unigram")


def utility_rows(config: RunConfig, evaluation: dict[str, Any], curator: bool) -> tuple[schema.UtilityRow, ...]:
    """The models of run/private/evaluation.json on each text; the exact private text for the curator alone."""
    rows = []
    size = evaluation["vocabulary_size"]
    responses = {"public": any(corpus.is_chat for corpus in config.public), "private": config.private.is_chat}
    for key, corpus in _CORPORA.items():
        if key not in evaluation or (key not in RELEASED_SCORES and not curator):
            continue
        for model in _MODELS:
            if model in evaluation[key]:
                rows.append(
                    _utility_row(corpus, model, evaluation[key][model], key == "private", responses.get(key, False))
                )
        masked = "accuracy" in evaluation[key]["released model"]
        accuracy = 1 / size if masked else None
        rows.append(
            schema.UtilityRow(corpus=corpus, model="uniform", masked_token_accuracy=accuracy, perplexity=float(size))
        )
    return tuple(rows)


_RESPONSES = "of conversations and prompts the responses alone"


def _utility_row(corpus: Any, model: Any, scores: dict[str, Any], noisy: bool, responses: bool) -> schema.UtilityRow:
    accuracies = scores.get("accuracy_interval") if noisy else None
    return schema.UtilityRow(
        corpus=corpus,
        model=model,
        masked_token_accuracy=scores.get("accuracy"),
        masked_token_accuracy_interval95=None if accuracies is None else tuple(accuracies),
        perplexity=scores["perplexity"],
        perplexity_interval95=tuple(scores["perplexity_interval"]) if noisy else None,
        perplexity_per_word=scores.get("perplexity_per_word"),
        bits_per_byte=scores.get("bits_per_byte"),
        note="; ".join(filter(None, (_utility_note(scores, noisy), _RESPONSES if responses else ""))),
    )


def _utility_note(scores: dict[str, Any], noisy: bool) -> str:
    noise = "means over units; interval of the added noise alone" if noisy else ""
    if "bits_per_byte" not in scores:
        return noise
    words, bits = f"{scores['perplexity_per_word']:.4g} a word", f"{scores['bits_per_byte']:.3f} bits a byte"
    if noisy:
        words += " ({:.4g} to {:.4g})".format(*scores["perplexity_per_word_interval"])
        bits += " ({:.3f} to {:.3f})".format(*scores["bits_per_byte_interval"])
    return "; ".join(filter(None, (f"perplexity a token; {words}, {bits}", noise)))


def examples(evaluation: dict[str, Any]) -> tuple[schema.Example, ...]:
    """What the models write for public texts; none of a run that was evaluated before tacit wrote any down."""
    return tuple(
        schema.Example(
            prompt=example["prompt"],
            text=example["text"],
            released=example["written"][schema.RELEASED],
            before=example["written"].get(schema.BEFORE, example["written"].get(schema.GIVEN)),
        )
        for example in evaluation.get("examples", [])
        if example["prompt"]
    )
