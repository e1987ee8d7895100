"""A run from text to report: each stage is a function of the run's state, and `run` is all of them in order.

    open_run   folder, lock, key, configuration check, ledger with every private stage planned
    vocabulary DP histogram -> WordPiece -> tokenizer
    train      the phases, then (when asked) the control without DP
    evaluate   held-out text: public exactly, private through a mechanism
    audit      exposure of the planted canaries
    report     run/release as a whole

Every stage looks first for its own finished output, so running the same command again continues where it stopped. Only
`tacit.release` writes to run/release; everything else stays in run/private (mode 0700).

Under torchrun the first process does all of this, and the others `assist` it in the training phases (docs/distributed.md).
"""

from __future__ import annotations

import dataclasses
import fcntl
import functools
import hashlib
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from tokenizers import Tokenizer
from transformers import BertForMaskedLM

from tacit import planning
from tacit.audit.exposure import Exposure, measure_exposure
from tacit.config import CorpusOptions, RunConfig, TupleUnit, config_differences
from tacit.corpus.canaries import Canary, draw_canaries, plant
from tacit.corpus.readers import Source, read_records
from tacit.corpus.units import Unit, UnitKind, group_units, split_held_out, unit_fingerprint
from tacit.engine.distributed import ALONE, Ranks
from tacit.errors import AuditError, DataError, LedgerError, UsageError
from tacit.files import private_folder, read_json, write_atomically, write_json
from tacit.folder import RunFolder
from tacit.models.bert import build_bert
from tacit.planning import EVALUATION, VOCABULARY, Mechanisms
from tacit.privacy.ledger import Ledger, LedgerHeader
from tacit.progress import Reporter, SilentReporter
from tacit.randomness import KEY_BYTES, Streams, load_or_create_key
from tacit.tasks.masked_lm import means_of_sum, noisy_sum, score_units, unigram, unit_vectors
from tacit.training.checkpoint import finished_steps, load_weights
from tacit.training.loop import run_phase
from tacit.training.masking import Masking
from tacit.training.plans import DpPlan, Phase, PlainPlan
from tacit.training.sequences import SequenceStream, tokenize_units
from tacit.vocabulary.count import count_words
from tacit.vocabulary.select import draw_noise, release
from tacit.vocabulary.tokenizer import SPECIAL_TOKENS, TokenizerOptions, build_tokenizer
from tacit.vocabulary.wordpiece import train_wordpiece

__all__ = ["RunState", "assist", "audit", "check_audit_gate", "evaluate", "open_run", "train", "vocabulary"]

_PUBLIC_HELD_OUT = 0.02

_CORPUS = "the private corpus"
"""The name of its fingerprint in the ledger."""


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
        return split_held_out(self.private_corpus[0], self.config.evaluation.held_out, self.streams.child("corpus"))

    @functools.cached_property
    def private_corpus(self) -> tuple[list[Unit], str]:
        """All private units, and their keyed fingerprint."""
        unit = self.config.privacy.unit
        kind = UnitKind.parse({"tuple": unit.tuple} if isinstance(unit, TupleUnit) else unit)
        units = group_units(read_records(_source(self.config.private)), kind)
        return units, unit_fingerprint(units, self.streams.child("corpus"))

    @functools.cached_property
    def public_units(self) -> tuple[list[Unit], list[Unit]]:
        """(training, held out) of the public corpora; every record is its own unit."""
        units: list[Unit] = []
        for number, options in enumerate(self.config.public):
            found = group_units(read_records(_source(options)), UnitKind("record"))
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
        tokenizer = Tokenizer.from_file(str(self.folder.private / "vocabulary" / "tokenizer.json"))
        tokenizer.encode_special_tokens = True  # a "[MASK]" that stands in a text is text
        return tokenizer

    @property
    def masking(self) -> Masking:
        """How this run masks."""
        return Masking(
            probability=self.config.masking_probability,
            mask_id=SPECIAL_TOKENS.index("[MASK]"),
            special_ids=len(SPECIAL_TOKENS),
            vocabulary_size=self.tokenizer.get_vocab_size(),
        )

    def check_data(self) -> None:
        """Read every corpus, so that a mistake in any of them shows before something is spent.

        Raises:
            DataError: a corpus is missing, malformed or empty.
        """
        training, _ = self.private_units
        if not training:
            raise DataError("no private unit is left for training: lower evaluation.held_out or give more text")
        _ = self.public_units  # reading it is the check

    def sequences(self, units: list[Unit]) -> SequenceStream:
        """Tokenised rows of units."""
        return tokenize_units(units, self.tokenizer, self.config.model.length, self.streams.child("sequences"))

    @functools.cached_property
    def public_stream(self) -> SequenceStream:
        """Public training rows."""
        return self.sequences(self.public_units[0])

    @functools.cached_property
    def public_held_out(self) -> SequenceStream:
        """Public held-out rows, as one unit a row, at most ``evaluation.public_sequences``."""
        stream = self.sequences(self.public_units[1])
        rows = min(stream.sequences, self.config.evaluation.public_sequences)
        keys = tuple(f"public {row}" for row in range(rows))
        return SequenceStream(stream.ids_ST[:rows], stream.lengths_S[:rows], np.arange(rows + 1), keys)

    @functools.cached_property
    def canaries(self) -> list[Canary]:
        """The planted canaries; empty without an audit."""
        options = self.config.audit
        if options is None:
            return []
        return draw_canaries(
            options.patterns,
            options.canaries,
            self.masking.special_ids,
            self.masking.vocabulary_size,
            self.streams.child("canaries"),
        )

    @functools.cached_property
    def private_stream(self) -> SequenceStream:
        """Private training rows with the canaries planted."""
        stream = self.sequences(self.private_units[0])
        if self.config.audit is None:
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

    def new_model(self) -> BertForMaskedLM:
        """The untrained model of this run."""
        seed = int.from_bytes(self.streams.derive("model")[:8], "big") >> 1
        return build_bert(self.config.model, self.masking.vocabulary_size, 0, seed)

    def checkpoint(self, phase: str) -> Path:
        """The checkpoint file of a phase."""
        return self.folder.private / "checkpoints" / f"{phase}.pt"

    def trained_model(self, phase: str) -> BertForMaskedLM:
        """The model as it stands in a phase's checkpoint."""
        model = self.new_model()
        load_weights(self.checkpoint(phase), model)
        return model


def _source(options: CorpusOptions) -> Source:
    return Source(
        path=options.resolved_path,
        format=options.format,
        text_field=options.text_field,
        id_field=options.id_field,
        user_field=options.user_field,
        max_record_bytes=options.max_record_bytes,
        limit=options.limit,
    )


@contextmanager
def open_run(config: RunConfig, reporter: Reporter | None = None, ranks: Ranks = ALONE) -> Iterator[RunState]:
    """Make or continue a run: its folder, lock, key, configuration and ledger with all private stages planned.

    With several ranks the first one calls this, and the others `assist` it until the context ends.

    Raises:
        UsageError: the folder holds a run with another configuration (the differences are named), or is in use.
        BudgetError: the plan exceeds the budget; nothing is spent and no data was read.
    """
    reporter = SilentReporter() if reporter is None else reporter
    folder = RunFolder(Path(config.run))
    mechanisms = None
    if not folder.ledger.exists():
        reporter.say("Planning: solving the noise for the budget (no data is read yet) ...")
        mechanisms = planning.solve(config)
    folder.root.mkdir(parents=True, exist_ok=True)
    private_folder(folder.private)
    with _locked(folder.private / "lock"):
        _set_up_torch(config, ranks)
        key = load_or_create_key(folder.private / "key")
        _check_config(config, folder)
        with _open_ledger(config, folder, key) as ledger:
            mechanisms = mechanisms or planning.mechanisms_from_ledger(config, ledger) or planning.solve(config)
            planning.plan_in_ledger(mechanisms, ledger)
            private_folder(folder.private / "checkpoints")
            ranks.tell(_Opened(config.model_dump(mode="json"), Streams(key).commitment(), mechanisms))
            yield RunState(config, folder, ledger, key, mechanisms, reporter, ranks)
            ranks.tell(None)


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    with path.open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise UsageError(f"{path.parent.parent}: another process is using this run folder; wait for it") from None
        yield


def _check_config(config: RunConfig, folder: RunFolder) -> None:
    """Refuse a changed configuration once something was spent; before that, start over with the new one."""
    if folder.config.exists() and folder.ledger.exists():
        old = folder.load_config()
        differences = config_differences(old.comparable(), config.comparable())
        if differences:
            with Ledger.open(folder.ledger, readonly=True) as ledger:
                spent = bool(ledger.spends())
            if spent:
                raise UsageError(
                    f"{folder.root}: this run was started with another configuration: {'; '.join(differences)}. "
                    "Use the old one, or another `run:` folder"
                )
            _forget_start(folder)
    write_json(folder.config, config.model_dump(mode="json"))


def _forget_start(folder: RunFolder) -> None:
    """Remove what a start that spent nothing left; the ledger's log goes first, it must not meet a new ledger."""
    ledgers = sorted(folder.root.glob("ledger.sqlite*"), key=lambda path: path == folder.ledger)
    for path in (*folder.private.glob("vocabulary/*"), *folder.private.glob("checkpoints/*"), *ledgers):
        path.unlink()


def _open_ledger(config: RunConfig, folder: RunFolder, key: bytes) -> Ledger:
    privacy = config.privacy
    header = LedgerHeader(
        unit=privacy.unit_name,
        relation=privacy.relation,
        units=privacy.units,
        epsilon=float("inf") if config.uses_heuristic else privacy.budget.epsilon,
        delta=privacy.budget.delta,
        config_digest=config.digest(),
        key_commitment=Streams(key).commitment(),
    )
    if not folder.ledger.exists():
        _refuse_lost_ledger(folder)
        return Ledger.create(folder.ledger, header)
    ledger = Ledger.open(folder.ledger)
    if ledger.header != header:
        ledger.close()
        raise UsageError(
            f"{folder.root}: the ledger belongs to another configuration or key; use another `run:` folder"
        )
    return ledger


def _refuse_lost_ledger(folder: RunFolder) -> None:
    """Results without their ledger were paid for in a ledger that is gone: a new one would not know of them."""
    results = [
        *folder.private.glob("vocabulary/*"),
        *folder.private.glob("checkpoints/*"),
        *folder.root.glob("release/*"),
    ]
    if results:
        raise LedgerError(
            f"{folder.ledger}: the ledger is missing but the run has results, whose privacy was paid for in it; "
            "restore it, or use another `run:` folder"
        )


def _set_up_torch(config: RunConfig, ranks: Ranks) -> None:
    """Threads (the ranks of one machine share its cores), and the same result every time."""
    here = int(os.environ.get("LOCAL_WORLD_SIZE", ranks.world))
    torch.set_num_threads(config.compute.threads or max(1, (os.cpu_count() or 1) // here))
    torch.use_deterministic_algorithms(True)


# the other processes under torchrun ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Opened:
    """What the first process tells the others when the run is open."""

    config: dict[str, Any]
    key_commitment: str
    mechanisms: Mechanisms


@dataclass(frozen=True)
class _Phases:
    """What it tells them before it trains: which phases, and what the ledger knows of the private corpus."""

    prefix: str
    fingerprint: str


def assist(config: RunConfig, ranks: Ranks) -> None:
    """Do this rank's part of all training that the first process begins, until it closes the run.

    Raises:
        UsageError: this process has another configuration.
        DataError: it sees another key or private corpus.
        TacitError: the first process stopped.
    """
    opened = ranks.hear()
    if opened.config != config.model_dump(mode="json"):
        raise UsageError(f"process {ranks.rank} was started with another configuration than process 0")
    folder = RunFolder(Path(config.run))
    path = folder.private / "key"
    key = load_or_create_key(path) if path.exists() else bytes(KEY_BYTES)
    if Streams(key).commitment() != opened.key_commitment:
        raise DataError(f"{path}: process {ranks.rank} does not see the key of process 0; share the run folder")
    _set_up_torch(config, ranks)
    state = RunState(config, folder, None, key, opened.mechanisms, SilentReporter(), ranks)
    while (order := ranks.hear()) is not None:
        if state.private_corpus[1] != order.fingerprint:
            raise DataError(f"process {ranks.rank} reads another private corpus than process 0; share the data")
        _run_phases(state, order.prefix)


def _call_others(state: RunState, prefix: str) -> None:
    if state.ranks.first and state.ranks.world > 1:
        state.ranks.tell(_Phases(prefix, state.private_corpus[1]))


# stages --------------------------------------------------------------------------------------------------------------


def vocabulary(state: RunState) -> None:
    """Release the word histogram under its event, train WordPiece on the release, write the tokenizer (Hoory 3.2)."""
    folder = private_folder(state.folder.private / "vocabulary")
    if (folder / "tokenizer.json").exists():
        return
    state.check_data()
    options = state.config.vocabulary
    text = TokenizerOptions(lowercase=options.lowercase)
    state.reporter.say("Vocabulary: counting words under the contribution bound ...")
    units = ((unit.unit_id, unit.texts) for unit in state.private_units[0])
    counts = count_words(units, state.mechanisms.vocabulary.max_words, state.streams.child("vocabulary"), text)
    noise = _vocabulary_noise(state, folder, len(counts))
    state.ledger.charge(VOCABULARY)
    released = release(counts, noise, int(state.mechanisms.vocabulary.threshold))
    write_json(folder / "released.json", released)
    if not released:
        state.reporter.say("Vocabulary: no word reached the threshold; the tokenizer has single characters only")
    pieces = train_wordpiece(released, options.size, text.alphabet, min_frequency=options.min_count)
    tokenizer = build_tokenizer(pieces, text)
    write_atomically(folder / "tokenizer.json", lambda partial: tokenizer.save(str(partial)))
    state.reporter.say(f"Vocabulary: {len(released)} words released, {len(pieces)} pieces")


def _vocabulary_noise(state: RunState, folder: Path, words: int) -> np.ndarray:
    """The noise of the release, drawn once: on disk, and its keyed digest in the ledger, before it meets a count.

    A killed run therefore repeats the same release, and other noise (a second release for the price of one) is refused.
    """
    path = folder / "noise.npy"
    if not path.exists():
        noise = draw_noise(words, state.mechanisms.vocabulary.noise_stddev)
        write_atomically(path, lambda partial: _save_array(partial, noise))
    digest = hashlib.blake2b(path.read_bytes(), key=state.streams.derive("noise digest"), digest_size=32)
    state.ledger.bind("the vocabulary's noise", digest.hexdigest())
    return np.load(path)


def _save_array(path: Path, array: np.ndarray) -> None:
    with path.open("wb") as file:
        np.save(file, array)


def train(state: RunState) -> None:
    """Run the phases in order, then the control without DP when the audit asks for it."""
    vocabulary(state)
    _run_phases(state, "")
    if state.config.audit is not None and state.config.audit.control:
        _run_phases(state, "control-")


def _run_phases(state: RunState, prefix: str) -> None:
    """All phases, or those of the control; at every rank, of which the first one alone looks whether they are done."""
    phases = _control_phases(state) if prefix else state.mechanisms.phases
    last = state.checkpoint(prefix + phases[-1].name)
    if state.ranks.first and finished_steps(last) == phases[-1].steps:
        return
    _call_others(state, prefix)
    model = state.new_model()
    title = "Control without DP" if prefix else "Training"
    begun = not prefix
    for phase in phases:
        begun = begun or phase.stream == "private"
        if not begun:  # the control begins where the public phases ended
            load_weights(state.checkpoint(phase.name), model)
            continue
        stream = state.public_stream if phase.stream == "public" else state.private_stream
        state.ranks.meet()
        with state.reporter.stage(f"{title}: {phase.name}", phase.steps) as bar:
            run_phase(
                model,
                phase,
                stream,
                state.masking,
                state.ledger if state.ranks.first and not prefix else None,
                state.streams.child("phase", prefix + phase.name),
                state.config.compute,
                state.checkpoint(prefix + phase.name),
                bar.advance_to,
                state.ranks,
            )


def _control_phases(state: RunState) -> tuple[Phase, ...]:
    """The same phases with ordinary training in place of DP: the positive control. Its model never leaves run/private."""
    options = state.config.audit
    assert options is not None
    phases = []
    for phase in state.mechanisms.phases:
        if isinstance(phase.plan, DpPlan):
            steps = options.control_steps or phase.steps
            optimizer = dataclasses.replace(phase.optimizer, learning_rate=options.control_learning_rate)
            phase = dataclasses.replace(phase, plan=PlainPlan(options.control_batch), steps=steps, optimizer=optimizer)
        phases.append(phase)
    return tuple(phases)


def evaluate(state: RunState) -> dict[str, Any]:
    """Masked-token accuracy and perplexity on held-out text, beside baselines; written to run/private/evaluation.json.

    Public text is scored exactly. The private part is one Gaussian release in the ledger, on units kept from training.
    """
    train(state)
    path = state.folder.private / "evaluation.json"
    if path.exists():
        return read_json(path)
    vocabulary_size = state.masking.vocabulary_size
    models: dict[str, BertForMaskedLM | np.ndarray] = {
        "released model": state.trained_model(state.config.phases[-1].name)
    }
    public_phases = [phase.name for phase in state.config.phases if phase.stream == "public"]
    if public_phases and state.config.dp_phases:
        models["after public phase"] = state.trained_model(public_phases[-1])
    models["unigram"] = unigram(state.public_stream, state.masking.special_ids, vocabulary_size)
    bound = 1.5 * float(np.log(vocabulary_size))
    state.reporter.say("Evaluation: held-out text ...")
    scores = score_units(models, state.public_held_out, 1, state.masking, state.streams.child("evaluation"))
    total = unit_vectors(scores, bound).sum(axis=0)
    found: dict[str, Any] = {
        "public": means_of_sum(total, tuple(models), 0.0, bound),
        "vocabulary_size": vocabulary_size,
    }
    if state.mechanisms.evaluation is not None:
        found["private"] = _evaluate_private(state, models, bound)
    write_json(path, found)
    return found


def _evaluate_private(state: RunState, models: dict[str, BertForMaskedLM | np.ndarray], bound: float) -> dict[str, Any]:
    event = state.mechanisms.evaluation
    assert event is not None
    streams = state.streams.child("evaluation")
    stream = state.sequences(state.private_units[1])
    state.ledger.charge(EVALUATION)
    scores = score_units(models, stream, state.config.evaluation.sequences_per_unit, state.masking, streams)
    vectors = unit_vectors(scores, bound)
    total = noisy_sum(vectors, event.noise_multiplier, streams.generator("noise"))
    return means_of_sum(total, tuple(models), event.noise_multiplier * float(np.sqrt(vectors.shape[1])), bound)


def audit(state: RunState) -> dict[str, list[Exposure]]:
    """Exposure of the canaries under the released model and, as a positive control, under the model without DP.

    Written to run/private/audit.json; the canaries themselves to run/private/canaries.json. See `check_audit_gate`.
    """
    options = state.config.audit
    if options is None:
        return {}
    train(state)
    write_json(state.folder.private / "canaries.json", [dataclasses.asdict(canary) for canary in state.canaries])
    last = state.config.phases[-1].name
    models = {"released model": state.checkpoint(last)}
    if options.control:
        models["control without DP"] = state.checkpoint(f"control-{last}")
    contexts = state.public_held_out
    rows = slice(0, min(options.contexts, contexts.sequences))
    found: dict[str, list[Exposure]] = {}
    for name, path in models.items():
        state.reporter.say(f"Audit: exposure of {len(state.canaries)} canaries under the {name} ...")
        model = state.new_model()
        load_weights(path, model)
        streams = state.streams.child("audit")
        found[name] = measure_exposure(
            model, state.canaries, contexts.ids_ST[rows], contexts.lengths_S[rows], state.masking, streams
        )
    values = {name: [dataclasses.asdict(row) for row in exposures] for name, exposures in found.items()}
    write_json(state.folder.private / "audit.json", values)
    return found


def check_audit_gate(state: RunState, found: dict[str, list[Exposure]]) -> None:
    """Fail when a released pattern's p-value is below the configured gate."""
    gate = state.config.audit.max_exposure_p_value if state.config.audit else 0.0
    for row in found.get("released model", []):
        if row.p_value < gate:
            raise AuditError(
                f"audit: pattern {row.pattern} is exposed by {row.bits:.2f} bits, p = {row.p_value:.2g}, below the gate {gate:g}; "
                "do not publish this release: check the engine and the ledger"
            )
