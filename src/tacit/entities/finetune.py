"""`tacit finetune`: one model, fine-tuned on annotated documents, with a ledger and a certificate of its own.

    RUN/finetune.json     the configuration
    RUN/ledger.sqlite     the fine-tuning's steps and, where the people are the same, what the pre-training spent
    RUN/release/          model/ (Hugging Face layout), certificate.json, README.md
    RUN/private/          mode 0700: key, checkpoint, scores.json, and with folds their tables

The same command again continues, bit for bit. Everything is read and checked before the folder is made.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from transformers.utils import logging

from tacit.config import config_differences
from tacit.config.finetune import FinetuneConfig
from tacit.corpus.annotated import AnnotatedUnit
from tacit.corpus.units import Unit, unit_fingerprint
from tacit.engine.noise import noise_source
from tacit.entities.cells import cutter_of
from tacit.entities.tagger import EntityObjective
from tacit.entities.tuning import Inputs, Tuning, new_model, read_inputs, trained_model
from tacit.entities.tuning_scores import are_scored, score, scores_file
from tacit.errors import UsageError
from tacit.files import one_line_of_storage, private_folder, read_json, write_private_json, write_text
from tacit.planning.finetuning import FINETUNING, dp_phase, plain_phase, solve_noise
from tacit.planning.finetuning_facts import finetuning_facts
from tacit.planning.finetuning_origin import inherited
from tacit.planning.origins import take_over
from tacit.privacy.certificate import finetuning_randomness, make_certificate
from tacit.privacy.certificate_file import read_certificate
from tacit.privacy.events import EVERY_PART
from tacit.privacy.ledger import Ledger, LedgerHeader
from tacit.privacy.origin import mark_released
from tacit.privacy.precision import precision_words
from tacit.privacy.provenance import (
    GENUINE,
    HONEST_PROGRAMS,
    HONEST_WEIGHTS,
    NOISE_SOURCE,
    has_others_programs,
    has_others_weights,
)
from tacit.privacy.strict_json import read_number
from tacit.progress import Reporter, SilentReporter
from tacit.randomness import KeyedRandomness
from tacit.release.writing import is_released, write_release
from tacit.runs.beginning import another_configuration, begin_in
from tacit.runs.folder import RunFolder
from tacit.runs.stages import RELEASE, Stage, walk
from tacit.training.checkpoint import finished_steps
from tacit.training.device import set_up_torch
from tacit.training.loop import run_phase
from tacit.training.phases import Phase
from tacit.vocabulary.tokenizer import save_tokenizer

__all__ = ["STAGES", "FinetuneResult", "finetune"]

_PLAIN_DELTA = 1e-5  # of a certificate whose epsilon is infinite at every delta
_NOT_STATED = 0  # units, where there is no guarantee that would need their number


@dataclass(frozen=True)
class FinetuneResult:
    """A finished fine-tuning.

    Args:
        epsilon: of the whole release, as certified; infinite without DP.
        statement: one paragraph: what holds, and for whom.
        scores: the file with the scores of the test documents, or of all documents by folds, for the curator; None without either.
            Where the documents are too few for the folds it says ``undecided``, and why.
    """

    folder: Path
    epsilon: float
    statement: str
    scores: Path | None


def finetune(config: FinetuneConfig, reporter: Reporter | None = None) -> FinetuneResult:
    """Fine-tune a model, or go on with it: all of `STAGES`.

    Raises:
        RefusedError: a guarantee that cannot be proved, with its reason code.
        BudgetError: the budget would be exceeded; nothing was spent.
        DataError: documents or a model that cannot be read, or (a LedgerError) others than when it began.
        UsageError: the folder is of another configuration, or in use.
    """
    with _opened(config, reporter or SilentReporter()) as tuning:
        walk(STAGES, tuning, config, STAGES[-1].name, tuning.reporter.say)
    return _result(config, RunFolder(config.resolved_run))


@contextmanager
def _opened(config: FinetuneConfig, reporter: Reporter) -> Iterator[Tuning]:
    """All that is given is read and checked, then the folder, its key and ledger are there, and the steps planned."""
    inputs = read_inputs(config)
    folder, device = RunFolder(config.resolved_run), set_up_torch(config.compute)
    cutter = cutter_of(inputs.start, config.training, inputs.tags)
    kept = begin_in(folder, _header(config), config.key_seed, lambda: _keep_config(config, folder))
    with one_line_of_storage(folder.root), kept as begun:
        ledger, streams = begun.ledger, KeyedRandomness(begun.key)
        _bind(ledger, config, inputs, streams)
        rows = cutter.unit_rows(inputs.units, streams.child("rows"))
        phase = _planned_phase(config, inputs, ledger, rows.sequences)
        assert phase.event is not None  # a phase on private text has one
        ledger.plan(phase.name, phase.event, phase.steps, EVERY_PART)
        ledger.bind(NOISE_SOURCE, noise_source(device).value)
        private_folder(folder.checkpoints)
        yield Tuning(config, inputs, folder, ledger, streams, cutter, rows, phase, reporter)


def _train(tuning: Tuning) -> None:
    phase = tuning.phase
    with tuning.reporter.stage("Fine-tuning", phase.steps) as bar:
        run_phase(
            new_model(tuning),
            phase,
            tuning.rows,
            EntityObjective(tuning.cutter.special.size),
            tuning.ledger,
            tuning.streams.child("phase", phase.name),
            tuning.config.compute,
            tuning.checkpoint,
            bar.advance_to,
        )


def _keep_config(config: FinetuneConfig, folder: RunFolder) -> None:
    """Refuse the folder of another run, and a configuration that has changed; keep the one that has not."""
    path = folder.finetune_config
    if folder.config.exists():
        raise UsageError(f"{folder.root}: this is the folder of a pre-training run; use another `run:` folder")
    if path.exists():
        old = FinetuneConfig.model_validate(read_json(path))
        differences = config_differences(old.comparable(), config.comparable())
        if differences:
            raise another_configuration(folder, "this fine-tuning", differences)
    elif folder.ledger.exists() or folder.release.exists():
        raise UsageError(f"{folder.root}: it has results but no finetune.json; use another `run:` folder")
    write_private_json(path, config.model_dump(mode="json"))  # it names the private files


def _header(config: FinetuneConfig) -> LedgerHeader:
    """What the ledger promises, but for the commitment of the key."""
    dp = config.dp
    return LedgerHeader(
        unit="document" if dp is None else dp.unit,
        relation="add-or-remove" if dp is None else dp.relation,
        units=_NOT_STATED if dp is None else dp.units,
        epsilon=float("inf") if dp is None else dp.budget.epsilon,
        delta=_PLAIN_DELTA if dp is None else dp.budget.delta,
        config_digest=config.digest(),
        key_commitment="",
    )


def _bind(ledger: Ledger, config: FinetuneConfig, inputs: Inputs, streams: KeyedRandomness) -> None:
    """Bind the model and the documents, and take over what is inherited."""
    ledger.bind("the model folder", inputs.start.digest)
    units = [Unit(unit.unit_id, _bound(unit)) for unit in inputs.units]
    ledger.bind("the annotated documents", unit_fingerprint(units, streams.child("documents")))
    take_over(ledger, inputs.provenance, inherited(config.dp, inputs.provenance))


def _bound(unit: AnnotatedUnit) -> tuple[str, ...]:
    """Its words and tags; of several documents, where each begins too."""
    if len(unit.documents) == 1:
        (document,) = unit.documents
        return (*document.tokens, *document.tags)
    sizes = [str(len(document.tokens)) for document in unit.documents]
    return (*sizes, *(word for document in unit.documents for word in (*document.tokens, *document.tags)))


def _planned_phase(config: FinetuneConfig, inputs: Inputs, ledger: Ledger, rows: int) -> Phase:
    """The phase, with the noise that an earlier start has planned where there was one."""
    if config.dp is None:
        return plain_phase(config.training, rows)
    planned = ledger.plans.get(FINETUNING)
    if planned is not None and (noise := planned.event.step_noise_multiplier) is not None:
        return dp_phase(config.training, config.dp, noise)
    before = inherited(config.dp, inputs.provenance).values()
    return dp_phase(config.training, config.dp, solve_noise(config.training, config.dp, before))


def _release(tuning: Tuning) -> None:
    """Model, certificate and a page, as a whole."""
    config, inputs, ledger, cutter = tuning.config, tuning.inputs, tuning.ledger, tuning.cutter
    tuning.reporter.say("Release: model and certificate ...")
    model = trained_model(tuning)

    def write_model(target: Path) -> None:
        logging.disable_progress_bar()
        model.save_pretrained(target)
        save_tokenizer(cutter.tokenizer, target, cutter.length, inputs.start.tokenizer.names)
        mark_released(target, ledger.rows[0].digest)

    def certify(digests: dict[str, str]) -> dict[str, Any]:
        randomness = finetuning_randomness(noise_source(tuning.device).value, config.key_seed is not None)
        certificate = make_certificate(ledger, digests, randomness + precision_words(ledger))
        epsilon, delta = read_number(certificate["epsilons"][0]["epsilon"]), ledger.header.delta
        return {**certificate, "fine_tuning": finetuning_facts(config, inputs.pretraining, epsilon, delta)}

    def write_page(target: Path, certificate: dict[str, Any]) -> None:
        text = _page(config, inputs, certificate["fine_tuning"]["statement"], certificate["ledger_head"])
        write_text(target / "README.md", text)

    write_release(tuning.folder.release, ledger, write_model, certify, write_page)


def _page(config: FinetuneConfig, inputs: Inputs, statement: str, head: str) -> str:
    start, tags = inputs.provenance.to_dict(), ", ".join(inputs.tags)
    weights = not config.model.from_scratch and has_others_weights(start)
    rests = [GENUINE] * bool(start["ancestors"]) + [HONEST_WEIGHTS] * weights
    rests += [HONEST_PROGRAMS] * has_others_programs(start)
    assumed = "".join(f"Assumed: {one}\n\n" for one in rests) if config.dp is not None else ""
    return (
        f"# {config.title}\n\n{statement}\n\n{assumed}A BERT that tags entities in IOB2: {tags}. The tag of a word is that of its "
        "first piece. `AutoModelForTokenClassification` and `AutoTokenizer` load the folder `model`.\n\n"
        "`certificate.json` holds what was spent; `tacit verify` recomputes it from the ledger, whose head\n"
        f"is `{head}`.\n"
    )


STAGES: tuple[Stage[Tuning], ...] = (
    Stage(
        "training",
        lambda config: True,
        lambda tuning: finished_steps(tuning.checkpoint) == tuning.phase.steps,
        _train,
    ),
    Stage(RELEASE, lambda config: True, lambda tuning: is_released(tuning.folder, tuning.ledger), _release),
    Stage(
        "scores",
        lambda config: config.test is not None or config.folds is not None,
        are_scored,
        score,
    ),
)
"""All of a fine-tuning, in order."""


def _result(config: FinetuneConfig, folder: RunFolder) -> FinetuneResult:
    certificate = read_certificate(folder.certificate)
    return FinetuneResult(
        folder=folder.root,
        epsilon=read_number(certificate["epsilons"][0]["epsilon"]),
        statement=certificate["fine_tuning"]["statement"],
        scores=None if config.test is None and config.folds is None else scores_file(folder),
    )
