"""Every architecture that the suite goes through: transformers' own classes at tiny size, as local folders, from their configs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from transformers import (
    CONFIG_MAPPING,
    MODEL_FOR_CAUSAL_LM_MAPPING,
    MODEL_FOR_MASKED_LM_MAPPING,
    PreTrainedModel,
    PreTrainedTokenizerFast,
)

from .folders import END, NAMES, byte_bpe, wordpiece

__all__ = ["ALL", "CAUSAL", "MASKED", "Architecture", "architecture_folder", "new_model"]

_SMALL = {
    "hidden_size": 16,
    "intermediate_size": 24,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "max_position_embeddings": 40,
    "head_dim": 8,
}


@dataclass(frozen=True)
class Architecture:
    """One of transformers' model types.

    Args:
        type: ``model_type`` in config.json.
        masked: whether it is asked for masked tokens.
        changes: of the small shape; None takes an option out.
        full: whether all its weights can be trained.
    """

    type: str
    masked: bool = False
    changes: Mapping[str, Any] = field(default_factory=dict)
    full: bool = True

    def config(self, size: int, **special: int) -> Any:
        """Its config for so many token ids."""
        known = CONFIG_MAPPING[self.type]().to_dict().keys()
        own = {**{name: value for name, value in _SMALL.items() if name in known}, **self.changes}
        return CONFIG_MAPPING[self.type](vocab_size=size, **own, **special)


def _row(text: str, masked: bool = False) -> list[Architecture]:
    return [Architecture(name, masked) for name in text.split()]


_OF_LAYERS = {"n_layer": 2, "n_head": 2, "hidden_size": 16}
_NEAR = {"layer_types": ["sliding_attention", "full_attention"], "sliding_window": 8}

CAUSAL = (
    *_row("llama mistral qwen2 qwen3 gemma phi phi3 olmo olmo2 stablelm starcoder2 gpt_neox cohere glm"),
    *_row("helium nemotron ernie4_5 hunyuan_v1_dense exaone4 seed_oss arcee smollm3 modernbert-decoder"),
    Architecture("gemma2", changes={"final_logit_softcapping": 0.5}),  # small enough for a small model to show it
    Architecture(
        "glm4", changes={"rms_norm_eps": 1e-2}
    ),  # a new one's outputs are so small that its norms make gradients of 1e9
    Architecture("granite", changes={"logits_scaling": 4.0}),
    Architecture("ministral", changes=_NEAR),
    Architecture("gemma3_text", changes=_NEAR),
    Architecture("olmo3", changes=_NEAR),
    Architecture("cohere2", changes=_NEAR),
    Architecture("falcon", changes={"num_kv_heads": 2}),
    Architecture("bloom", changes=_OF_LAYERS),
    Architecture("opt", changes={"ffn_dim": 24, "word_embed_proj_dim": 16}),
    Architecture("gpt2", changes={"n_layer": 2, "n_head": 2, "n_embd": 16, "n_positions": 40}),
)

MASKED = (
    *_row("bert albert electra modernbert deberta-v2 eurobert nomic_bert convbert roformer mpnet ernie", masked=True),
    *(Architecture(name, True, {"max_position_embeddings": 100}) for name in ("roberta", "xlm-roberta", "camembert")),
    Architecture("distilbert", True, {"dim": 16, "hidden_dim": 24, "n_layers": 2, "n_heads": 2}),
)

ALL = {architecture.type: architecture for architecture in (*CAUSAL, *MASKED)}


def new_model(architecture: Architecture, size: int, **special: int) -> PreTrainedModel:
    """A new model with random weights."""
    config = architecture.config(size, **special)
    mapping: Any = MODEL_FOR_MASKED_LM_MAPPING if architecture.masked else MODEL_FOR_CAUSAL_LM_MAPPING
    torch.manual_seed(3)
    return mapping[type(config)](config)


def architecture_folder(architecture: Architecture, folder: Path) -> Path:
    """Model and tokenizer, as a user has them: WordPiece for masked models, byte-level BPE for causal ones."""
    tokenizer = wordpiece() if architecture.masked else byte_bpe()
    size = tokenizer.get_vocab_size()
    if architecture.masked:
        names: dict[str, str] = NAMES
        special = {"pad_token_id": tokenizer.token_to_id("[PAD]")}
    else:
        names = {"bos_token": END, "eos_token": END}
        special = {"bos_token_id": size - 1, "eos_token_id": size - 1, "pad_token_id": size - 1}
    new_model(architecture, size, **special).save_pretrained(folder)
    PreTrainedTokenizerFast(tokenizer_object=tokenizer, **names).save_pretrained(folder)
    return folder
