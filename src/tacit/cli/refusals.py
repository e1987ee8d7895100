"""Why each reason code refuses, and what to do: the table of docs/reference/errors.md, where a `RefusedError` is looked up."""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["ADVICE", "Advice"]


class Advice(NamedTuple):
    """What whoever was refused is told: why, and what to do instead, in a few words of Markdown."""

    why: str
    what_to_do: str


ADVICE: dict[str, Advice] = {
    "delta-too-large": Advice("at 1/`units` a mechanism may publish a random unit", "a delta far below 1/`units`"),
    "vocabulary-formula": Advice(
        "`method: hoory` claims too small a delta", "`method: weighted`; `allow: [heuristic:hoory]`"
    ),
    "private-text-without-noise": Advice(
        "plain phase on private or redacted text", "`plan: dp`; `allow: [heuristic:non-private]`"
    ),
    "screening-needs-replace": Advice("secrets change records", "`privacy.relation: replace`"),
    "no-confidentiality": Advice(
        "no line is finite",
        "bound the misses (`screening.measurement`, or `gamma` and `delta2`), `plan: dp` on `stream: private`; "
        "`allow: [heuristic:no-confidentiality]`",
    ),
    "policy-not-local": Advice(
        "a policy that reads context lets a caught secret change what stands beside it "
        "(docs/confidentiality.md#token-by-token)",
        "`balanced` and `conservative` of `kind: tokens`, no `missed`; `policies: context`",
    ),
    "group-with-tokens": Advice(
        "`gamma` is of one secret, a group's data point may hold several", "no `group`; `policies: context`"
    ),
    "public-tokens-without-noise": Advice(
        "selective DP shows public tokens", "`plan: dp` on `stream: private`; `allow: [heuristic:selective-dp]`"
    ),
    "marking-needs-replace": Advice("marking replaces tokens", "`privacy.relation: replace`"),
    "tokens-across-words": Advice(
        "private characters would decide public tokens beside them",
        "no `vocabulary.method: given`, or a WordPiece with BERT's normalizer and pre-tokenizer",
    ),
    "noise-from-the-batch": Advice(
        "noise of `form: literal` shows the batch (docs/adaptive.md#why-the-published-form-has-no-epsilon)",
        "`form: strata`, `clip-weights`; `allow: [heuristic:adp]`",
    ),
    "scorer-not-public": Advice(
        "it read private text, or its certificate is missing, damaged or for other files",
        "a public model (docs/adaptive.md#who-may-be-the-scorer)",
    ),
    "start-unknown": Advice(
        "no certificate",
        "`public: true` if it was made from public text alone; `same_people: false`; in a run `allow: [heuristic:unknown-start]`",
    ),
    "start-inside-a-run": Advice(
        "it lies in a run, or in a release without certificate", "finish that run, name its `release/model`"
    ),
    "start-without-certificate": Advice("released by tacit from private text", "bring its certificate back"),
    "start-unrecorded": Advice(
        "certificate of 0.1 (TACIT-1, docs/known-vulnerabilities.md#tacit-1)", "train that model again"
    ),
    "start-with-screening": Advice("the start read unknown private text", "a public model; `same_people: false`"),
    "key-without-ledger": Advice("its noise may have been seen", "restore the ledger, or remove the folder"),
    "two-releases-of-one-key": Advice("the starts were made in copies of one begun folder", "start from one of them"),
    "pretraining-unit-differs": Advice(
        "units or relations do not compose", "the same `dp.unit` and `dp.relation`; `same_people: false`"
    ),
    "pretraining-without-guarantee": Advice("no finite epsilon", "`same_people: false`; no `dp`"),
    "labels-from-private-data": Advice("which types occur is private", "`labels`, in a comparison of each task"),
    "steps-from-private-data": Advice("epochs count private rows", "`training.steps`"),
    "context-beyond-unit": Advice("rows show more than a sentence", "`training.context: sentence`"),
    "public-key": Advice("noise from a public seed", "no `seed`; in a run `allow: [heuristic:public-key]`"),
    "discrete-noise-too-small": Advice("no exact law below 3", "`noise_stddev` of 3 or more, or solved"),
    "noise-too-small": Advice("multiplier below 0.05", "more noise"),
    "classic-gaussian-epsilon": Advice("the formula fails from epsilon 1 on", "`Gaussian.analytic`"),
    "near-duplicates-before-claim": Advice(
        "a record changes unboundedly many (arXiv 2309.05610)", "exact deduplication"
    ),
    "replace-claim-from-add-or-remove": Advice("a replaced secret costs more", "spends under `replace`"),
    "parameter-without-rule": Advice(
        "layer without per-example gradient", "freeze it, or add a rule (docs/adding.md#a-layer-of-the-engine)"
    ),
    "unsteady-model": Advice(
        "a row, or a random draw without the key, changes how other rows are computed", "another type of model"
    ),
    "place-in-batch": Advice(
        "where a unit stands in its micro-batch, which others decide, decides how its numbers are rounded",
        "features and lengths that are multiples of 8, micro-batches of a multiple of 64 units, or of one",
    ),
    "model-raises": Advice(
        "the model ends with an error at a made-up row, as some unit's row would",
        "whole weights and the options they were made with",
    ),
    "cross-example-operation": Advice("a layer mixes examples (batch norm)", "LayerNorm; row i must be example i"),
    "buffer-written": Advice("running statistics without noise", "eval mode, or none"),
    "compiled-model": Advice("compiled code runs no hooks", "the model before `torch.compile`"),
    "sharded-without-rule": Advice("a sharded LSTM or fallback layer", "freeze it, do not shard"),
    "unknown-head": Advice("no plain `nn.Linear`", "call the head (masked: on `at_positions(...)`)"),
    "parameter-outside-rule": Advice("unclipped outside its layer's call", "call the layer, or freeze it"),
    "ambiguous-batch-dimension": Advice(
        "rows may be examples or positions", "position indices (1, positions), `batch_first=True`, another batch size"
    ),
    "packed-sequence": Advice("its rows are not the batch's", "padding on the right"),
    "second-order-gradient": Advice("`create_graph=True`", "omit it"),
}
"""By reason code; a test holds it to the codes that the source raises."""
