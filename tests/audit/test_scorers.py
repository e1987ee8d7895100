"""Which scorer a model gets. That each reads what the model says is tested through the trie (test_trie.py)."""

from __future__ import annotations

from types import SimpleNamespace

from tacit.audit.scorers import CacheScorer, PrefixScorer, StateScorer, scorer_of
from tacit.models.lstm import LstmConfig, LstmForCausalLM

from .tiny import tiny_gpt2


def test_the_scorer_of_a_model() -> None:
    lstm = LstmForCausalLM(LstmConfig(vocab_size=40, embedding_size=4, hidden_size=4))
    assert isinstance(scorer_of(tiny_gpt2()), CacheScorer)
    assert isinstance(scorer_of(lstm), StateScorer)
    assert isinstance(scorer_of(SimpleNamespace(config=SimpleNamespace(model_type="llama"))), PrefixScorer)
