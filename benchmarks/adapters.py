"""Megabytes a second of the detectors of other libraries (docs/adapters.md), on turns of CustomerSim, one thread, CPU time.

Run ``python benchmarks/adapters.py DATA``, where DATA is the folder of real corpora. The spaCy pipeline and the BERTs are new: their
weights do not change the speed.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from pathlib import Path
from typing import Any, cast

import spacy
import torch
from tokenizers import BertWordPieceTokenizer
from transformers import BertConfig, BertForTokenClassification, PreTrainedTokenizerFast

from screening import customersim, first_megabytes, megabytes_per_second
from tacit.screening.adapters.options import HuggingFaceOptions, PrecomputedOptions, PresidioOptions, SpacyOptions
from tacit.screening.adapters.registry import detector_from_options

TAGS = {0: "O", 1: "B-A", 2: "I-A"}


def new_bert(folder: Path, turns: list[str], layers: int, width: int) -> None:
    """A BERT with a head for tags, random weights, and a WordPiece of the turns."""
    pieces = BertWordPieceTokenizer()
    pieces.train_from_iterator(turns, vocab_size=8000, show_progress=False)
    PreTrainedTokenizerFast(tokenizer_object=pieces._tokenizer, pad_token="[PAD]").save_pretrained(folder)
    config = BertConfig(
        num_hidden_layers=layers,
        hidden_size=width,
        num_attention_heads=width // 64,
        intermediate_size=4 * width,
        id2label=TAGS,
    )
    BertForTokenClassification(config).save_pretrained(folder)


def new_pipeline(folder: Path) -> None:
    """A spaCy pipeline with an untrained ``ner`` component."""
    pipeline = spacy.blank("en")
    cast(Any, pipeline.add_pipe("ner")).add_label("PERSON")  # its type is of any component
    pipeline.initialize()
    pipeline.to_disk(folder)


def main() -> None:
    """Print a line for each detector."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else None)
    parser.add_argument("data", type=Path, help="folder of real corpora")
    data = parser.parse_args().data
    torch.set_num_threads(1)
    turns = [turn for text in first_megabytes(customersim(data), 0.3) for turn in text.split("\n")]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        new_bert(folder / "bert-4", turns, 4, 256)
        new_bert(folder / "bert-12", turns, 12, 768)
        new_pipeline(folder / "ner")
        spans = folder / "spans.jsonl"
        spans.write_text("".join(json.dumps({"text": turn, "spans": []}) + "\n" for turn in turns))
        for options, count in (
            (PrecomputedOptions(path=str(spans)), len(turns)),
            (PresidioOptions(), 170),
            (SpacyOptions(pipeline=str(folder / "ner")), 170),
            (HuggingFaceOptions(folder=str(folder / "bert-4")), 170),
            (HuggingFaceOptions(folder=str(folder / "bert-12")), 50),
        ):
            speed = megabytes_per_second(detector_from_options(options), turns[:count], passes=2)
            print(f"{options.kind:12} {speed:8.4f} MB/s")


if __name__ == "__main__":
    main()
