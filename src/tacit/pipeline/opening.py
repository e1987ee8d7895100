"""Open a run: its folder (`tacit.runs.beginning`), what it is given, and its ledger with every private stage planned."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch

from tacit.config import RunConfig
from tacit.engine.distributed import ALONE, Ranks
from tacit.engine.noise import noise_source
from tacit.errors import DataError
from tacit.files import one_line_of_storage, private_folder
from tacit.models.kinds import build_model
from tacit.pipeline.event_file import FILE_NAME, EventFile, RecordingReporter
from tacit.pipeline.rho import check_scorer
from tacit.pipeline.state import RunState, objective_of
from tacit.planning import Mechanisms, disk_bytes, mechanisms_from_ledger, plan_in_ledger, solve
from tacit.planning.confidentiality import check_confidentiality, planned_statement
from tacit.planning.corpora import check_corpora
from tacit.planning.cost import refuse_too_large
from tacit.planning.given import check_folder, fingerprints, given_tokenizer
from tacit.planning.locality import token_policies
from tacit.planning.measured import measurement_of_run
from tacit.planning.origins import provenance_of
from tacit.privacy.confidentiality.measurement import MEASUREMENT
from tacit.privacy.ledger import Ledger
from tacit.privacy.provenance import NOISE_SOURCE
from tacit.progress import Reporter, SilentReporter
from tacit.randomness import KEY_BYTES, KeyedRandomness, read_key
from tacit.runs.beginning import begin, today
from tacit.runs.folder import RunFolder
from tacit.training.device import computed_by, set_up_torch
from tacit.training.preflight import Preflight, preflight
from tacit.version import installed
from tacit.vocabulary.given import read_given

__all__ = ["join_run", "load_given", "open_run", "training_noise"]


@dataclass(frozen=True)
class _Opened:
    """What rank 0 tells the other ranks when the run is open."""

    key_commitment: str
    mechanisms: Mechanisms


@contextmanager
def open_run(config: RunConfig, reporter: Reporter | None = None, ranks: Ranks = ALONE) -> Iterator[RunState]:
    """Make or continue a run: its folder, lock, key, configuration and ledger with all private stages planned.

    With several ranks rank 0 calls this, and the others `assist` it until the context ends.

    Raises:
        UsageError: the folder holds a run with another configuration (the differences are named), or is in use.
        BudgetError: the plan exceeds the budget; nothing is spent, and of the data no more than each first record was read.
        DataError: the given tokenizer or model is not suitable, or (a LedgerError) another one than when the run began.
    """
    reporter = SilentReporter() if reporter is None else reporter
    day = today()  # before any private text is read, on whose size the time may hang
    _agree_and_set_up(config, ranks)
    folder = RunFolder(config.resolved_run)
    mechanisms, measurement, policies = None, measurement_of_run(config), token_policies(config)
    if not _is_planned(config, folder):
        found = load_given(config)
        for line in [] if found is None else found.lines():
            reporter.say(line)
        check_corpora(config)
        with reporter.stage("Planning: solving the noise", 1) as bar:
            mechanisms = solve(config, list(provenance_of(config).inherited.values()))
            bar.advance_to(1)
        check_confidentiality(config, planned_statement(config, mechanisms.spends(), measurement))
    with one_line_of_storage(folder.root, lambda: disk_bytes(config)), begin(config, day=day) as begun:
        ledger, key = begun.ledger, begun.key
        for name, digest in (fingerprints(config) | policies).items():
            ledger.bind(name, digest)
        start = provenance_of(config)
        mechanisms = mechanisms or mechanisms_from_ledger(config, ledger)
        mechanisms = mechanisms or solve(config, list(start.inherited.values()))
        plan_in_ledger(mechanisms, ledger, start)
        ledger.bind(NOISE_SOURCE, training_noise(config))
        if measurement is not None:
            ledger.bind(MEASUREMENT, measurement.to_json())
        private_folder(folder.checkpoints)
        ranks.tell(_Opened(KeyedRandomness(key).commitment(), mechanisms))
        recording = RecordingReporter(reporter, EventFile(folder.private / FILE_NAME))
        yield RunState(config, folder, ledger, KeyedRandomness(key), mechanisms, recording, ranks)
        ranks.tell(None)


def _is_planned(config: RunConfig, folder: RunFolder) -> bool:
    """Whether an earlier start with this configuration looked at all that it is given; `tacit screen` alone does not."""
    if not folder.ledger.exists():
        return False
    with Ledger.open(folder.ledger, readonly=True) as ledger:
        same = ledger.header.config_digest == config.digest()
        return same and ledger.bound(NOISE_SOURCE) is not None


def load_given(config: RunConfig) -> Preflight | None:
    """Load once what the run is given, so that a mistake in it shows before anything is written; and try a step of a given model.

    Returns:
        what was found of the model that is trained with noise; None where none is given. With a vocabulary that is not made yet
        the folder's own is in its place.

    Raises:
        TacitError: it is not suitable, or the engine cannot clip it exactly.
    """
    check_scorer(config)
    if config.model.folder is not None:
        refuse_too_large(config)
    given = given_tokenizer(config) if config.vocabulary.how.brings_tokenizer else None
    if config.model.folder is None:
        return None
    if given is None:
        check_folder(config)
        given = read_given(config.model.resolved_folder)
    model = build_model(config.model, given.special, 0, given.tokenizer)
    if config.compute.device == "cuda" and torch.cuda.is_available():  # a run is planned on other machines, too
        torch.nn.Module.cuda(model)
    if config.marking is not None or not config.dp_phases:
        return None
    rows = max(phase.sequences_per_unit * phase.maskings for phase in config.dp_phases)
    objective = objective_of(config, given.special)
    return preflight(model, objective, given.special, config.model.length, rows)


def join_run(config: RunConfig, ranks: Ranks) -> RunState:
    """The run that rank 0 has opened, on another rank: without lock and ledger.

    Raises:
        DataError: this process has another configuration, version of the code or processor, or sees another key.
        LostError: rank 0 stopped.
    """
    _agree_and_set_up(config, ranks)
    opened = ranks.hear()
    folder = RunFolder(config.resolved_run)
    path = folder.private / "key"
    key = read_key(path) if path.exists() else bytes(KEY_BYTES)
    if KeyedRandomness(key).commitment() != opened.key_commitment:
        raise DataError(f"{path}: rank {ranks.rank} does not see the key of rank 0; share the run folder")
    return RunState(config, folder, None, KeyedRandomness(key), opened.mechanisms, SilentReporter(), ranks)


def _agree_and_set_up(config: RunConfig, ranks: Ranks) -> None:
    """Check, before anything is looked at, that every rank has the same configuration and code, and rounds alike.

    The ranks of one machine share its cores.

    Raises:
        DataError: one was not; every rank says so.
    """
    ranks.agree("the configuration", json.dumps(config.model_dump(mode="json"), sort_keys=True).encode())
    ranks.agree("the version of tacit, or of a library", installed().encode())
    device = set_up_torch(config.compute, int(os.environ.get("LOCAL_WORLD_SIZE", ranks.world)))
    alike = (
        "kind of processor, number of threads (compute.threads), and variables such as OMP_THREAD_LIMIT and MKL_CBWR"
    )
    ranks.agree("the processor, or the number of its threads", computed_by(device).encode(), alike)


def training_noise(config: RunConfig) -> str:
    """What the training noise is drawn from, in words; bound in the ledger, so a run cannot go on with another source."""
    return noise_source(torch.device(config.compute.device)).value
