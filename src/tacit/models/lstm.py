"""The LSTM language model of Zhao et al. 2022 (appendix A.3: one layer, embedding 200, hidden 200) as a transformers model.

It is made of plain ``nn.Embedding``, ``nn.LSTM`` and ``nn.Linear``, which `tacit.engine.PerExampleClipper` knows. Importing
this module registers it, so that ``AutoModelForCausalLM.from_pretrained`` loads a saved one.

Rows are padded on the right only. A position's state depends on the positions before it, so padding behind them changes
nothing, and nothing is packed.

Shapes: B rows, T positions, E embedding, H hidden features, V vocabulary, L layers.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor, nn
from torch.nn import functional as F
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedConfig, PreTrainedModel
from transformers import initialization as init
from transformers.utils.generic import ModelOutput

from tacit.errors import UsageError

__all__ = ["LstmConfig", "LstmForCausalLM", "LstmOutput", "LstmState", "check_right_padded", "head_and_hidden"]

LstmState = tuple[Tensor, Tensor]
"""The hidden and the cell state after some position, (L, B, H) each."""


class LstmConfig(PreTrainedConfig):
    """The shape of an `LstmForCausalLM`.

    Args:
        vocab_size: V.
        embedding_size: E.
        hidden_size: H.
        num_hidden_layers: L.
        dropout: on embeddings, between layers and before the head (Zaremba et al. 2014, arXiv 1409.2329).
        tie_word_embeddings: whether the head's weight is the embedding table; needs E = H.
        pad_token_id: padding; it has no other meaning here.
        bos_token_id: the token that rows begin with.
        eos_token_id: the token that rows end with.
    """

    model_type = "tacit-lstm"

    vocab_size: int = 8192
    embedding_size: int = 200
    hidden_size: int = 200
    num_hidden_layers: int = 1
    dropout: float = 0.0
    tie_word_embeddings: bool = False
    pad_token_id: int | None = None
    bos_token_id: int | None = None
    eos_token_id: int | None = None


@dataclass
class LstmOutput(ModelOutput):
    """The output of the LSTM: as transformers' ``CausalLMOutput``, with the state after the last position.

    Args:
        loss: mean cross-entropy in nats over all labels of the batch, or None.
        logits: (B, T, V); those at position t are about the token at t + 1.
        state: what a call with the next positions takes.
    """

    loss: Tensor | None = None
    logits: Tensor | None = None
    state: LstmState | None = None


class LstmForCausalLM(PreTrainedModel):
    """Embedding, LSTM, linear head with bias.

    Raises:
        UsageError: tied embeddings with E other than H.
    """

    config_class = LstmConfig
    _input_embed_layer = "embedding"  # where transformers puts a longer table
    _tied_weights_keys = {"lm_head.weight": "embedding.weight"}  # noqa: RUF012 - transformers reads it from the class

    def __init__(self, config: LstmConfig) -> None:
        super().__init__(config)
        if config.tie_word_embeddings and config.embedding_size != config.hidden_size:
            raise UsageError(
                f"tied embeddings need one width, not {config.embedding_size} for the embedding and {config.hidden_size} "
                "for the LSTM; untie them or make the widths equal"
            )
        layers = config.num_hidden_layers
        self.embedding = nn.Embedding(config.vocab_size, config.embedding_size)
        self.lstm = nn.LSTM(
            config.embedding_size,
            config.hidden_size,
            num_layers=layers,
            batch_first=True,
            dropout=config.dropout if layers > 1 else 0.0,  # it is between layers only
        )
        self.dropout = nn.Dropout(config.dropout)
        self.lm_head = nn.Linear(config.hidden_size, config.vocab_size)
        self.post_init()

    def get_input_embeddings(self) -> nn.Embedding:
        """The table of the tokens."""
        return self.embedding

    def get_output_embeddings(self) -> nn.Linear:
        """The head."""
        return self.lm_head

    def _init_weights(self, module: nn.Module) -> None:
        """Begin as torch's word language model: table and head uniform in +-0.1, the LSTM in +-1/sqrt(H), the head's bias 0."""
        if isinstance(module, nn.Embedding | nn.Linear):
            init.uniform_(module.weight, -0.1, 0.1)
            if isinstance(module, nn.Linear):
                init.zeros_(module.bias)
        elif isinstance(module, nn.LSTM):
            bound = module.hidden_size**-0.5
            for parameter in module.parameters():
                init.uniform_(parameter, -bound, bound)

    def hidden_states(self, input_ids: Tensor, state: LstmState | None = None) -> tuple[Tensor, LstmState]:
        """What the head gets, (B, T, H), and the state after the last position."""
        hidden_BTH, last = self.lstm(self.dropout(self.embedding(input_ids)), state)
        return self.dropout(hidden_BTH), last

    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None = None,
        labels: Tensor | None = None,
        state: LstmState | None = None,
    ) -> LstmOutput:
        """Logits, and where labels are given transformers' loss.

        Args:
            input_ids: (B, T) token ids.
            attention_mask: (B, T), 1 at real positions. It must end every row and changes nothing.
            labels: the ids themselves, -100 where there is no loss; the shift happens here. The loss is a mean over the
                batch, so a row's gradient would depend on other rows: for training under clipping use
                `tacit.models.causal.causal_row_losses`.
            state: of the call with the positions before these; zeros at a row's start.

        Raises:
            UsageError: padding before a real position.
        """
        if attention_mask is not None:
            check_right_padded(attention_mask)
        hidden_BTH, state = self.hidden_states(input_ids, state)
        logits_BTV = self.lm_head(hidden_BTH)
        loss = None
        if labels is not None:
            loss = F.cross_entropy(logits_BTV[:, :-1].flatten(0, 1), labels[:, 1:].flatten())
        return LstmOutput(loss=loss, logits=logits_BTV, state=state)


def check_right_padded(attention_BT: Tensor) -> None:
    """Raises UsageError where a row has padding (0) before a real position (1)."""
    if bool((attention_BT[:, 1:].bool() & ~attention_BT[:, :-1].bool()).any()):
        raise UsageError("a row is padded before a real position; pad causal models on the right")


def head_and_hidden(model: LstmForCausalLM, ids_BT: Tensor) -> tuple[nn.Linear, Tensor]:
    """The head, and what it gets (B, T, H)."""
    return model.lm_head, model.hidden_states(ids_BT)[0]


def _register() -> None:
    AutoConfig.register(LstmConfig.model_type, LstmConfig, exist_ok=True)
    AutoModelForCausalLM.register(LstmConfig, LstmForCausalLM, exist_ok=True)


_register()
