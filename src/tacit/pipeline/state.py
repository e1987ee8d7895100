"""What the stages of one open run share: its configuration, its mechanisms, and its data, read when it is first needed."""

from __future__ import annotations

import dataclasses
import functools
import os
from collections.abc import Iterable, Mapping
from pathlib import Path

import numpy as np
import torch
from tokenizers import Tokenizer
from transformers import PreTrainedModel

from tacit.audit.samples import MembershipSamples
from tacit.config import RunConfig, TupleUnit, stratum_number
from tacit.corpus.canaries import Canary, draw_canaries, plant
from tacit.corpus.readers import MOST_RECORD_BYTES, Source, read_records
from tacit.corpus.records import Record
from tacit.corpus.units import Unit, UnitKind, group_units, split_held_out, unit_fingerprint
from tacit.engine.distributed import ALONE, Ranks
from tacit.errors import DataError, UsageError
from tacit.files import atomic_folder, read_json
from tacit.folder import RunFolder
from tacit.models.kinds import build_model, save_model
from tacit.pipeline.corpus import planted_records, source_of
from tacit.pipeline.marking import MarkedText, mark, marker_of, marks_digest
from tacit.pipeline.membership import raw_documents, run_samples
from tacit.pipeline.rho import unit_rho
from tacit.pipeline.screening import screened, screened_folder
from tacit.planning import Mechanisms
from tacit.privacy.ledger import Ledger
from tacit.progress import Reporter
from tacit.randomness import Streams
from tacit.training.checkpoint import load_weights
from tacit.training.marked import tokenize_marked, unmarked
from tacit.training.masking import Masking
from tacit.training.objectives import CausalObjective, MaskedObjective, Objective
from tacit.training.plans import Phase, SelectivePlan
from tacit.training.selective import PrivateTokens, PublicTokens, numbers_of_state
from tacit.training.sequences import SequenceStream, tokenize_units
from tacit.vocabulary.special import OWN_NAMES, SpecialTokens, special_tokens
from tacit.vocabulary.tokenizer import save_tokenizer

__all__ = ["RunState"]

_PUBLIC_HELD_OUT = 0.02

_CORPUS = "the private corpus"
_MARKS = "the marks of private tokens"
"""The names of their fingerprints in the ledger."""


class RunState:
    """Everything that the stages of one open run share; data is read when it is first needed.

    Args:
        ledger: None in a process that assists the first one.
        ranks: the processes that train together.
    """

    def __init__(
        self,
        config: RunConfig,
        folder: RunFolder,
        ledger: Ledger | None,
        key: bytes,
        mechanisms: Mechanisms,
        reporter: Reporter,
        ranks: Ranks = ALONE,
    ) -> None:
        self.config = config
        self.folder = folder
        self.streams = Streams(key)
        self.mechanisms = mechanisms
        self.reporter = reporter
        self.ranks = ranks
        self._ledger = ledger

    @property
    def ledger(self) -> Ledger:
        """The ledger, which the first process alone holds."""
        if self._ledger is None:
            raise UsageError("only the first process of a run holds its ledger")
        return self._ledger

    @functools.cached_property
    def private_units(self) -> tuple[list[Unit], list[Unit]]:
        """(training, held out); bound to the ledger, so that a resumed run cannot continue on other data."""
        if self._ledger is not None:
            self._ledger.bind(_CORPUS, self.private_corpus[1])
        if self.config.screening is not None:
            return self.private_corpus[0], group_units(self._screened_records("held_out"), UnitKind("record"))
        training, held_out = split_held_out(
            self.private_corpus[0], self.config.evaluation.held_out, self.streams.child("corpus")
        )
        planted = [Unit(record.document_id, (record.text,)) for record in planted_records(self.config, self.streams)]
        return [*training, *planted], held_out

    @functools.cached_property
    def private_corpus(self) -> tuple[list[Unit], str]:
        """All private units, and their keyed fingerprint."""
        unit = self.config.privacy.unit
        kind = UnitKind.parse({"tuple": unit.tuple} if isinstance(unit, TupleUnit) else unit)
        given = self.config.screening is None
        records = read_records(source_of(self.config.private)) if given else self._screened_records("private")
        units = group_units(records, kind)
        return units, unit_fingerprint(units, self.streams.child("corpus"))

    def _screened_records(self, name: str) -> Iterable[Record]:
        """Of one of the files that screening writes; what one data point is was decided there. A file may be empty."""
        path = self.screened_folder / f"{name}.jsonl"
        most = MOST_RECORD_BYTES  # escapes and masks lengthen a text that was within the limit
        return read_records(Source(path, "jsonl", id_field="id", max_record_bytes=most)) if path.stat().st_size else ()

    @functools.cached_property
    def screened_folder(self) -> Path:
        """Where the screened corpus lies; it is screened here, once."""
        screened(self.config, self.folder, self.streams, self.reporter)
        return screened_folder(self.folder)

    @functools.cached_property
    def screened_units(self) -> list[Unit]:
        """The data points that screening lets through: they are trained on without noise."""
        return group_units(self._screened_records("public"), UnitKind("record"))

    @functools.cached_property
    def marked_texts(self) -> list[MarkedText]:
        """The data points of the training units, raw, with what the policy marks in them (selective DP)."""
        options = self.config.marking
        if options is None:
            raise UsageError("the configuration has no section `marking`, so no private token is marked")
        self.reporter.say("Marking: private tokens of the private text ...")
        marked = mark(self.private_units[0], marker_of(options, self.streams), options.data_point)
        if self._ledger is not None:
            self._ledger.bind(_MARKS, marks_digest(marked, self.streams.child("corpus")))
        return marked

    @functools.cached_property
    def membership_samples(self) -> MembershipSamples:
        """The texts of the membership attack, from the corpus that the run trains on.

        Raises:
            UsageError: the configuration asks for no such attack.
            DataError: the corpus has changed.
        """
        _ = self.private_units  # reading it compares the corpus with the one that was trained on
        units = self.private_corpus[0] if self.config.screening is None else raw_documents(self.config)
        return run_samples(self.config, units, self.streams)

    @functools.cached_property
    def public_units(self) -> tuple[list[Unit], list[Unit]]:
        """(training, held out) of the public corpora; every record is its own unit."""
        units: list[Unit] = []
        for number, options in enumerate(self.config.public):
            found = group_units(read_records(source_of(options)), UnitKind("record"))
            units += [Unit(f"{number}:{unit.unit_id}", unit.texts) for unit in found]
        training, held_out = split_held_out(units, _PUBLIC_HELD_OUT, self.streams.child("public corpus"))
        if not training or not held_out:
            raise DataError(
                "the public corpus is too small to hold some records out: give at least a few hundred records"
            )
        return training, held_out

    @functools.cached_property
    def tokenizer(self) -> Tokenizer:
        """The released tokenizer; `vocabulary` must have run."""
        tokenizer = Tokenizer.from_file(str(self.vocabulary_folder / "tokenizer.json"))
        tokenizer.encode_special_tokens = True  # a "[MASK]" that stands in a text is text
        return tokenizer

    @property
    def vocabulary_folder(self) -> Path:
        """What the vocabulary stage leaves."""
        return self.folder.private / "vocabulary"

    @functools.cached_property
    def special_names(self) -> Mapping[str, str]:
        """The tokenizer's special tokens by role; those of a given one were written beside it."""
        path = self.vocabulary_folder / "special_tokens.json"
        return read_json(path) if path.exists() else OWN_NAMES

    @functools.cached_property
    def special(self) -> SpecialTokens:
        """The ids of the tokenizer's special tokens, and how many ids there are."""
        return special_tokens(self.tokenizer, self.special_names)

    @functools.cached_property
    def masking(self) -> Masking:
        """How a masked model's rows are masked."""
        special = self.special
        if special.mask is None:
            raise UsageError("the tokenizer has no mask token, which a masked model needs")
        return Masking(self.config.masking_probability, special.mask, special.ids, special.size)

    @property
    def objective(self) -> Objective:
        """What this run's model is asked about rows that are not marked."""
        return CausalObjective() if self.config.model.is_causal else MaskedObjective(self.masking)

    def objective_of(self, phase: Phase) -> Objective:
        """What it is asked in a phase: of marked rows public tokens or private ones, by the phase's plan."""
        if phase.stream != "marked":
            return self.objective
        size, plan = self.special.size, phase.plan
        if not isinstance(plan, SelectivePlan):
            return PrivateTokens(size)
        model = self.config.model
        numbers = numbers_of_state(model.layers, model.width)
        draws = PublicTokens.draws_for(plan.segments, numbers, model.length)
        return PublicTokens(size, plan.segments, plan.state_clip, plan.state_noise_multiplier, numbers, draws)

    def check_data(self) -> None:
        """Read every corpus, so that a mistake in any of them shows before something is spent.

        Raises:
            DataError: a corpus is missing, malformed or without a record. That no unit is left for training, or none to hold out,
                is no error: one unit more or fewer may decide it (docs/guarantees.md#the-domain-of-corpora).
        """
        _ = self.private_units  # reading it is the check
        if self.config.public:
            _ = self.public_units  # reading it is the check

    def sequences(self, units: list[Unit]) -> SequenceStream:
        """Tokenised rows of units."""
        return tokenize_units(
            units, self.tokenizer, self.special, self.config.model.length, self.streams.child("sequences")
        )

    @functools.cached_property
    def public_stream(self) -> SequenceStream:
        """Public training rows: of each unit as often as its corpus says."""
        return self.sequences([copy for unit in self.public_units[0] for copy in self._copies(unit)])

    def _copies(self, unit: Unit) -> list[Unit]:
        """A public unit, and the same text under other ids, which have random choices of their own."""
        times = self.config.public[int(unit.unit_id.split(":")[0])].times
        return [unit, *(Unit(f"{unit.unit_id}:copy {number}", unit.texts) for number in range(2, times + 1))]

    @functools.cached_property
    def screened_stream(self) -> SequenceStream:
        """Rows of the data points that screening lets through."""
        return self.sequences(self.screened_units)

    @functools.cached_property
    def redacted_stream(self) -> SequenceStream:
        """Rows of the whole corpus as screening has redacted it."""
        return self.sequences([*self.screened_units, *self.private_units[0]])

    @functools.cached_property
    def marked_stream(self) -> SequenceStream:
        """One row of each data point, its private tokens marked."""
        texts = self.marked_texts
        return tokenize_marked(
            [text.unit for text in texts],
            [text.runs for text in texts],
            self.tokenizer,
            self.special,
            self.config.model.length,
            self.streams.child("sequences"),
        )

    def stream(self, name: str) -> SequenceStream:
        """The rows that a phase reads."""
        return {
            "public": lambda: self.public_stream,
            "screened": lambda: self.screened_stream,
            "redacted": lambda: self.redacted_stream,
            "private": lambda: self.private_stream,
            "marked": lambda: self.marked_stream,
        }["private" if stratum_number(name) is not None else name]()  # whom a stratum has is the plan's to choose

    @property
    def plain_stream(self) -> SequenceStream:
        """Rows whose tokens are counted for the unigram, which only the curator sees where they are private."""
        if self.config.public:
            return self.public_stream
        if self.config.marking is None:
            return self.screened_stream
        return unmarked(self.marked_stream, self.special.size)

    @property
    def public_held_out_units(self) -> list[Unit]:
        """Public held-out texts; of a causal model, whose texts count whole, as many as ``evaluation.public_sequences``."""
        units = self.public_units[1]
        return units[: self.config.evaluation.public_sequences] if self.config.model.is_causal else units

    @functools.cached_property
    def public_held_out(self) -> SequenceStream:
        """Public held-out rows: of a masked model one unit a row, at most ``evaluation.public_sequences``; of a causal one whole."""
        stream = self.sequences(self.public_held_out_units)
        if self.config.model.is_causal:
            return stream
        rows = min(stream.sequences, self.config.evaluation.public_sequences)
        keys = tuple(f"public {row}" for row in range(rows))
        return SequenceStream(stream.ids_ST[:rows], stream.lengths_S[:rows], np.arange(rows + 1), keys)

    @functools.cached_property
    def canaries(self) -> list[Canary]:
        """The planted canaries; empty without an audit."""
        options = self.config.audit
        if options is None:
            return []
        return draw_canaries(options.patterns, options.canaries, self.masking.ordinary, self.streams.child("canaries"))

    @functools.cached_property
    def private_stream(self) -> SequenceStream:
        """Private training rows; for a masked model with the canaries planted (a causal one's are texts of the corpus)."""
        stream = self.sequences(self.private_units[0])
        if self.config.adaptive is not None:
            stream = dataclasses.replace(stream, rho_U=self.rho_U)
        if self.config.audit is None or self.config.model.is_causal:
            return stream
        ids, lengths = plant(
            stream.ids_ST,
            stream.lengths_S,
            stream.starts_U1,
            stream.keys_U,
            self.canaries,
            self.config.audit.probability,
            self.streams.child("canaries"),
        )
        return dataclasses.replace(stream, ids_ST=ids, lengths_S=lengths)

    @functools.cached_property
    def rho_U(self) -> np.ndarray:
        """Each training unit's privacy probability (adaptive DP), from a scorer that is there by then."""
        return unit_rho(
            self.config,
            self.folder,
            self.streams,
            self.reporter,
            self.ledger,
            self.private_units[0],
            self.public_units[1],
            self._scorer_folder(),
        )

    def _scorer_folder(self) -> Path:
        """The model that the scoring phase left, with its tokenizer, as a folder; written once."""
        options, folder = self.config.adaptive, self.folder.private / "scorer"
        if options is not None and options.scorer.phase is not None and not folder.exists():
            phase = next(phase for phase in self.config.phases if phase.name == options.scorer.phase)
            with atomic_folder(folder) as partial:
                save_model(self.trained_model(self.config.phase_name(phase, 0)), partial)
                save_tokenizer(self.tokenizer, partial, self.config.model.length, self.special_names)
        return folder

    @property
    def device(self) -> torch.device:
        """Where models are trained and audited; each process on a machine has a GPU of its own."""
        name = self.config.compute.device
        return torch.device(name, int(os.environ.get("LOCAL_RANK", 0))) if name == "cuda" else torch.device(name)

    def new_model(self) -> PreTrainedModel:
        """The model that this run begins with."""
        seed = int.from_bytes(self.streams.derive("model")[:8], "big") >> 1
        return build_model(self.config.model, self.special, seed, self.tokenizer)

    def checkpoint(self, phase: str) -> Path:
        """The checkpoint file of a phase."""
        return self.folder.private / "checkpoints" / f"{phase}.pt"

    def trained_model(self, phase: str) -> PreTrainedModel:
        """The model as it stands in a phase's checkpoint."""
        model = self.new_model()
        load_weights(self.checkpoint(phase), model)
        return model
