"""Whatever else transformers loads: a folder whose model has no row of its own is of a family, by what it is asked.

A family has no shape of its own to build a new model with, and no formula for its parameters: a folder says both, its weights by the
sizes in their files. What the engine cannot clip exactly is refused by name when the model is loaded.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tacit.config.kinds.kind import Kind, ModelShape, stored_parameters

__all__ = ["FAMILIES", "PLAIN_HEADS", "family_of", "is_routed"]

_SPELLINGS = {
    "num_hidden_layers": ("n_layer", "n_layers", "num_layers"),
    "hidden_size": ("n_embd", "dim", "n_embed", "d_model"),
    "num_attention_heads": ("n_head", "n_heads"),
    "intermediate_size": ("n_inner", "ffn_dim", "hidden_dim", "ffn_hidden_size"),
    "max_position_embeddings": ("n_positions", "max_sequence_length"),
}
"""What families call the same number."""

_BEHIND_PADDING = frozenset(
    {"camembert", "data2vec-text", "longformer", "mpnet", "roberta", "roberta-prelayernorm", "xlm-roberta"}
)
"""Types whose positions are numbered from behind the padding's id on, which so many of them are lost to."""

_CAUSAL = ("ForCausalLM", "LMHeadModel")
_MASKED = ("ForMaskedLM",)


_PLAIN_WORDS = """
apertus arcee bloom ernie4_5 exaone4 falcon gemma glm glm4 gpt_neo gpt_neox helium hunyuan_v1_dense lfm2 ministral
mistral nemotron olmo olmo2 olmo3 phi phi3 qwen2 qwen3 seed_oss smollm3 stablelm starcoder2
"""
PLAIN_HEADS = frozenset(_PLAIN_WORDS.split())
"""Types of models whose logits are their head on the last hidden states, and nothing else. Of others all logits are made: some cap
or scale them (Gemma 2, Cohere, Granite), and a model would be trained to other logits than it is used with."""


def family_of(values: Mapping[str, Any]) -> Kind | None:
    """The family of a config.json, by the class that it names under ``architectures``; None where that is of neither."""
    architectures = values.get("architectures")
    for name in architectures if isinstance(architectures, list) else ():
        for kind, endings in ((ANY_CAUSAL, _CAUSAL), (ANY_MASKED, _MASKED)):
            if isinstance(name, str) and name.endswith(endings):
                return kind
    return None


_EXPERTS = ("num_local_experts", "num_experts", "n_routed_experts", "moe_num_experts")


def is_routed(values: Mapping[str, Any]) -> bool:
    """Whether a config.json is of a mixture of experts: which positions share a product there, the positions of all rows decide."""
    counts = [values.get(name) for name in _EXPERTS]
    return any(isinstance(count, int) and not isinstance(count, bool) and count > 1 for count in counts)


def _layer_cost(shape: ModelShape, length: int) -> int:
    """Multiplications of one layer at one position, as if all that is not a table or a head were multiplied there."""
    tables = (1 if shape.tied else 2) * (shape.vocabulary or 0) * shape.embedding
    return max(0, (shape.stored or 0) - tables) // shape.layers + 2 * length * shape.width


def _completed(values: Mapping[str, Any]) -> Mapping[str, Any]:
    """The values under their usual names; a feed-forward part that is not named is four times as wide as the rest."""
    found = dict(values)
    for name, others in _SPELLINGS.items():
        said = next((values[other] for other in others if values.get(other) is not None), None)
        if found.get(name) is None and said is not None:
            found[name] = said
    longest = found.get("max_position_embeddings")
    padding = 1 if found.get("model_type") == "mpnet" else found.get("pad_token_id")
    if found.get("model_type") in _BEHIND_PADDING and isinstance(longest, int):
        found["max_position_embeddings"] = longest - 1 - (padding if isinstance(padding, int) else 1)
    width = found.get("hidden_size")
    if not isinstance(found.get("intermediate_size"), int) and isinstance(width, int):
        found["intermediate_size"] = 4 * width
    return found


def _objection(values: Mapping[str, Any]) -> str | None:
    if values.get("add_cross_attention") or values.get("is_encoder_decoder"):
        return "as part of an encoder and decoder"
    if values.get("quantization_config") is not None:
        return "with quantised weights, whose gradients are not those of the weights that would be released"
    if any(
        isinstance(value, dict) and name.endswith("_config")
        for name, value in values.items()
        if name != "quantization_config"
    ):
        return "that also takes other things than text"
    return None


def _family(name: str, objective: Any, network: str) -> Kind:
    return Kind(
        name=name,
        model_type="",
        objective=objective,
        network=network,
        keys={
            "layers": "num_hidden_layers",
            "width": "hidden_size",
            "embedding": "hidden_size",
            "heads": "num_attention_heads",
            "intermediate": "intermediate_size",
            "positions": "max_position_embeddings",
        },
        may_lack=frozenset({"heads", "positions"}),
        dropout=(),
        tied=True,
        parameters=stored_parameters,
        layer_cost=_layer_cost,
        completed=_completed,
        objection=_objection,
        counts_stored=True,
        is_family=True,
    )


ANY_CAUSAL = _family("causal", "causal", "transformers:AutoModelForCausalLM")
ANY_MASKED = _family("masked", "masked", "transformers:AutoModelForMaskedLM")

FAMILIES: dict[str, Kind] = {kind.name: kind for kind in (ANY_CAUSAL, ANY_MASKED)}
"""By name, as `model.kind` has it."""
