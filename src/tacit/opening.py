"""Open a run: its folder, lock, key, configuration check, and its ledger with every private stage planned."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from tacit import planning
from tacit.config import RunConfig, config_differences
from tacit.engine.distributed import ALONE, Ranks
from tacit.engine.noise import noise_source
from tacit.errors import DataError, LedgerError, UsageError
from tacit.files import one_line_of_storage, private_folder, write_private_json
from tacit.folder import RunFolder, nothing_left, taken
from tacit.given import check_folder, fingerprints, given_tokenizer
from tacit.models.kinds import build_model
from tacit.planning import Mechanisms
from tacit.privacy.ledger import Ledger, LedgerHeader
from tacit.progress import Reporter, SilentReporter
from tacit.randomness import KEY_BYTES, Streams, load_or_create_key
from tacit.rho_stage import check_scorer
from tacit.run_state import RunState
from tacit.vocabulary.given import read_given

__all__ = ["join_run", "open_run", "training_noise"]


@dataclass(frozen=True)
class _Opened:
    """What the first process tells the others when the run is open."""

    config: dict[str, Any]
    key_commitment: str
    mechanisms: Mechanisms


@contextmanager
def open_run(config: RunConfig, reporter: Reporter | None = None, ranks: Ranks = ALONE) -> Iterator[RunState]:
    """Make or continue a run: its folder, lock, key, configuration and ledger with all private stages planned.

    With several ranks the first one calls this, and the others `assist` it until the context ends.

    Raises:
        UsageError: the folder holds a run with another configuration (the differences are named), or is in use; or several ranks
            are to train with adaptive DP.
        BudgetError: the plan exceeds the budget; nothing is spent and no data was read.
        DataError: the given tokenizer or model is not suitable, or (a LedgerError) another one than when the run began.
    """
    reporter = SilentReporter() if reporter is None else reporter
    if config.adaptive is not None and ranks.world > 1:
        raise UsageError("adaptive: one process scores and trains; start the run without torchrun")
    folder = RunFolder(Path(config.run))
    was_there = folder.root.exists()
    mechanisms = None
    if not folder.ledger.exists():
        _load_given(config)
        reporter.say("Planning: solving the noise for the budget (no data is read yet) ...")
        mechanisms = planning.solve(config)
    with (
        one_line_of_storage(folder.root, lambda: planning.disk_bytes(config)),
        taken(folder),
        nothing_left(folder.root, was_there, lambda: _has_spent_or_done(folder)),
    ):
        _set_up_torch(config, ranks)
        key = load_or_create_key(folder.private / "key")
        _check_config(config, folder)
        with _open_ledger(config, folder, key) as ledger:
            mechanisms = mechanisms or planning.mechanisms_from_ledger(config, ledger) or planning.solve(config)
            planning.plan_in_ledger(mechanisms, ledger)
            ledger.bind("the training noise's source", training_noise(config))
            for name, digest in fingerprints(config).items():
                ledger.bind(name, digest)
            private_folder(folder.private / "checkpoints")
            ranks.tell(_Opened(config.model_dump(mode="json"), Streams(key).commitment(), mechanisms))
            yield RunState(config, folder, ledger, key, mechanisms, reporter, ranks)
            ranks.tell(None)


def _has_spent_or_done(folder: RunFolder) -> bool:
    if folder.has_results or not folder.ledger.exists():
        return folder.has_results
    with Ledger.open(folder.ledger, readonly=True) as ledger:
        return bool(ledger.spends())


def _load_given(config: RunConfig) -> None:
    """Load once what the run is given, so that a mistake in it shows before anything is written."""
    check_scorer(config)
    if config.vocabulary.method == "given":
        given = given_tokenizer(config)
        if config.model.folder is not None:
            build_model(config.model, given.special, 0, given.tokenizer)
    elif config.model.folder is not None:
        check_folder(config)
        own = read_given(config.model.resolved_folder)
        build_model(config.model, own.special, 0, own.tokenizer)  # the run's tokenizer is not made yet


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
    write_private_json(folder.config, config.model_dump(mode="json"))  # it names the private files


def _forget_start(folder: RunFolder) -> None:
    """Remove what a start that spent nothing left; the ledger's log goes first, it must not meet a new ledger."""
    for made in (*folder.private.glob("screened*"), *folder.private.glob("scores*"), *folder.private.glob("scorer*")):
        shutil.rmtree(made)
    ledgers = sorted(folder.root.glob("ledger.sqlite*"), key=lambda path: path == folder.ledger)
    rho = [path for path in (folder.private / "rho.json", folder.private / "adaptive.json") if path.exists()]
    for path in (*folder.private.glob("vocabulary/*"), *folder.private.glob("checkpoints/*"), *rho, *ledgers):
        path.unlink()


def _open_ledger(config: RunConfig, folder: RunFolder, key: bytes) -> Ledger:
    privacy = config.privacy
    header = LedgerHeader(
        unit=privacy.unit_name,
        relation=privacy.relation,
        units=privacy.units,
        epsilon=float("inf") if config.is_unbounded else privacy.budget.epsilon,
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
    """Threads (the ranks of one machine share its cores), and the same result every time.

    Raises:
        UsageError: the configuration asks for a GPU that is not there.
    """
    if config.compute.device == "cuda":
        if not torch.cuda.is_available():
            raise UsageError("compute.device is cuda, but torch finds no CUDA device; set it to cpu")
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # without it cuBLAS is not deterministic
    here = int(os.environ.get("LOCAL_WORLD_SIZE", ranks.world))
    torch.set_num_threads(config.compute.threads or max(1, (os.cpu_count() or 1) // here))
    torch.use_deterministic_algorithms(True)


def join_run(config: RunConfig, ranks: Ranks) -> RunState:
    """The run that the first process has opened, in another one: without lock and ledger.

    Raises:
        UsageError: this process has another configuration.
        DataError: it sees another key.
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
    return RunState(config, folder, None, key, opened.mechanisms, SilentReporter(), ranks)


def training_noise(config: RunConfig) -> str:
    """What the training noise is drawn from, in words; bound in the ledger, so a run cannot go on with another source."""
    return noise_source(torch.device(config.compute.device)).value
