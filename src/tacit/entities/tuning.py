"""A fine-tuning that is open: what it reads, and its model before and after training (`tacit.entities.finetune`)."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from transformers import PreTrainedModel

from tacit.config.finetune import FinetuneConfig
from tacit.corpus.annotated import (
    AnnotatedDocument,
    AnnotatedUnit,
    alone,
    entity_types,
    refuse_shared_documents,
    refuse_unknown_types,
    tag_set,
    units_of,
)
from tacit.entities.cells import documents_of
from tacit.entities.rows import RowCutter
from tacit.entities.start import Start, open_start
from tacit.entities.tagger import load_tagger
from tacit.planning.finetuning_origin import provenance_of_model
from tacit.privacy.ledger import Ledger
from tacit.privacy.provenance import Ancestor, Provenance
from tacit.progress import Reporter
from tacit.randomness import KeyedRandomness
from tacit.runs.folder import RunFolder
from tacit.training.checkpoint import load_weights
from tacit.training.phases import Phase
from tacit.training.sequences import SequenceStream

__all__ = ["Inputs", "Tuning", "new_model", "read_inputs", "trained_model"]


@dataclass(frozen=True)
class Inputs:
    """All that is read before anything is written."""

    start: Start
    provenance: Provenance
    units: list[AnnotatedUnit]
    test: list[AnnotatedDocument]
    tags: tuple[str, ...]

    @property
    def pretraining(self) -> Ancestor | None:
        """The release that the model is of; None where it is of none."""
        return self.provenance.ancestors[-1] if self.provenance.ancestors else None


@dataclass(frozen=True)
class Tuning:
    """An open fine-tuning: its phase, and the rows that it reads."""

    config: FinetuneConfig
    inputs: Inputs
    folder: RunFolder
    ledger: Ledger
    streams: KeyedRandomness
    cutter: RowCutter
    rows: SequenceStream
    phase: Phase
    reporter: Reporter

    @property
    def checkpoint(self) -> Path:
        """The checkpoint of its one phase."""
        return self.folder.checkpoint(self.phase.name)

    @property
    def device(self) -> torch.device:
        """Where the model is trained."""
        return torch.device(self.config.compute.device)


def read_inputs(config: FinetuneConfig) -> Inputs:
    """Everything that a configuration names, read and checked.

    Raises:
        DataError: documents or a model that cannot be read, or an entity type that is not among those that are looked for.
        RefusedError: a guarantee that cannot be proved.
    """
    start = open_start(config.model, config.training)
    provenance = provenance_of_model(config.model, config.dp, config.same_people, start.digest)
    documents = documents_of(config.documents)
    types = config.labels or entity_types(documents)
    if config.labels is not None:
        refuse_unknown_types(documents, types, "the option labels")
    test: list[AnnotatedDocument] = []
    if config.test is not None:
        test = documents_of(config.test)
        refuse_shared_documents(documents, test)
        refuse_unknown_types(test, types, "the training documents" if config.labels is None else "the option labels")
    units = alone(documents) if config.dp is None else units_of(documents, config.dp.unit)
    return Inputs(start, provenance, units, test, tag_set(types))


def new_model(tuning: Tuning) -> Any:
    """The model before its first step: what it starts from, under a head whose weights are drawn by the key."""
    start, training, model = tuning.inputs.start, tuning.config.training, tuning.config.model
    seed = tuning.streams.seed("head") >> 1
    found = load_tagger(start.folder, tuning.inputs.tags, seed, training.dropout, model.from_scratch)
    return found.to(tuning.device)  # pyright: ignore[reportArgumentType]


def trained_model(tuning: Tuning) -> PreTrainedModel:
    """The model of the checkpoint."""
    model = new_model(tuning)
    load_weights(tuning.checkpoint, model)
    return model
