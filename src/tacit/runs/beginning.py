"""How a run folder begins and goes on: lock, configuration, key and ledger, which belong together. Needs no torch.

A key decides all noise of the training, and a ledger says what was paid for under it. So the two are made together: a ledger is never
made beside a key that is there already, whose noise may have been seen somewhere. On disk the order is

    key.new      the key, not in use yet
    ledger       which holds the key's commitment
    key          renamed from key.new: the run has begun

and a start that is killed between two of them is mended by the next one.
"""

from __future__ import annotations

import datetime
import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tacit.config import RunConfig, config_differences
from tacit.errors import LedgerError, RefusedError, UsageError
from tacit.files import write_private_json
from tacit.privacy.ledger import Ledger, LedgerHeader
from tacit.privacy.provenance import BEGUN, MADE_BY
from tacit.randomness import KeyedRandomness, draw_key, read_key
from tacit.runs.folder import RunFolder, remove_if_refused, taken
from tacit.runs.ledger_place import held, link, refuse_lost
from tacit.version import VERSION

__all__ = ["Begun", "another_configuration", "begin", "begin_in", "today"]


@dataclass(frozen=True)
class Begun:
    """A run folder that is open for this process alone."""

    folder: RunFolder
    key: bytes
    ledger: Ledger


def today() -> str:
    """The day of now, in UTC, in ISO 8601."""
    return datetime.datetime.now(datetime.UTC).date().isoformat()


@contextmanager
def begin(config: RunConfig, start_over: bool = True, day: str | None = None) -> Iterator[Begun]:
    """Make or continue the folder of a run: locked, with its configuration, key and ledger.

    Args:
        start_over: with another configuration, as long as nothing was spent; else what is there is kept, and refused.
        day: on which the run begins, if it begins now: taken by `today` before any private text is read. None: today.

    Raises:
        UsageError: the folder holds a run with another configuration (the differences are named), or is in use.
        LedgerError: key and ledger do not belong together, or one of them is missing.
    """
    folder, privacy = RunFolder(config.resolved_run), config.privacy
    header = LedgerHeader(
        unit=privacy.unit_name,
        relation=privacy.relation,
        units=privacy.units,
        epsilon=float("inf") if config.is_unbounded else privacy.budget.epsilon,
        delta=privacy.budget.delta,
        config_digest=config.digest(),
        key_commitment="",  # of a key that is drawn with it
    )
    kept = begin_in(
        folder,
        header,
        config.seed,
        lambda: _check_config(config, folder, start_over),
        config.resolved_ledger_folder,
        today() if day is None else day,
    )
    with kept as begun:
        yield begun


@contextmanager
def begin_in(
    folder: RunFolder,
    header: LedgerHeader,
    seed: str | None,
    keep_config: Callable[[], None],
    ledger_folder: Path | None = None,
    day: str | None = None,
) -> Iterator[Begun]:
    """Make or continue the folder of a run or of a fine-tuning: locked, with its configuration, key and ledger.

    A refusal while it is open removes what this start made, unless something was paid for or done by then.

    Args:
        header: of the ledger, but for the commitment of the key.
        seed: what a public key is made from; None: the key is drawn from the operating system.
        keep_config: refuses the configuration where the folder has another one, and keeps it there.
        ledger_folder: on a local disk, where the ledger is while this is open; None: in the run folder.
        day: of the beginning, which a new ledger binds; None: no page of the release shows it.

    Raises:
        UsageError: the folder is in use, or is that of a training loop of one's own; or the ledger would lie on a network's disk.
        LedgerError: key and ledger do not belong together, or one of them is missing.
    """
    was_there = folder.root.exists()
    with taken(folder), remove_if_refused(folder.root, was_there, lambda: _has_spent_or_done(folder)):
        _refuse_own_loop(folder)
        refuse_lost(folder.ledger)  # before the configuration that it belongs to is replaced
        keep_config()
        with held(folder.ledger, ledger_folder) as place:
            key, ledger = _open_ledger_and_key(folder, header, seed, place, day)
            with ledger:
                yield Begun(folder, key, ledger)


def another_configuration(folder: RunFolder, what: str, differences: Sequence[str]) -> UsageError:
    """The refusal to go on: ``what`` was started with another configuration."""
    return UsageError(
        f"{folder.root}: {what} was started with another configuration: {'; '.join(differences)}. "
        "Use the old one, or another `run:` folder"
    )


def _refuse_own_loop(folder: RunFolder) -> None:
    if folder.loop_plan.exists():
        raise UsageError(
            f"{folder.root}: a training loop has this folder (`tacit.PrivateSteps`); use another `run:` folder"
        )


def _open_ledger_and_key(
    folder: RunFolder, header: LedgerHeader, seed: str | None, place: Path, day: str | None
) -> tuple[bytes, Ledger]:
    """The folder's key and ledger, which are made together where there are none.

    Args:
        header: of the ledger, but for the commitment of the key.
        seed: what a public key is made from; None: the key is drawn from the operating system.
        place: where a new ledger is made.
        day: of the beginning, which a new ledger binds; None: none.

    Raises:
        LedgerError: one of them is missing, or they do not belong together.
    """
    path, new = folder.private / "key", folder.private / "key.new"
    if not folder.ledger.exists():
        _refuse_lost_ledger(folder, path)
        key = draw_key(new, seed)
        ledger = Ledger.create(place, _committed(header, key))
        link(folder.ledger, place)
        os.replace(new, path)
        _bind_beginning(ledger, day)
        return key, ledger
    if not path.exists() and new.exists():
        os.replace(new, path)  # a start that was killed when its ledger stood
    key = read_key(path)
    ledger = Ledger.open(folder.ledger)
    try:
        _check_ledger(ledger, _committed(header, key), folder, day)
    except BaseException:
        ledger.close()
        raise
    return key, ledger


def _committed(header: LedgerHeader, key: bytes) -> LedgerHeader:
    return LedgerHeader(**{**header.__dict__, "key_commitment": KeyedRandomness(key).commitment()})


def _bind_beginning(ledger: Ledger, day: str | None) -> None:
    """The version comes last. So where it is bound and no day is, an earlier version began the run, and no day is made up for it."""
    if day is not None and ledger.bound(BEGUN) is None:
        ledger.bind(BEGUN, day)
    ledger.bind(MADE_BY, VERSION)


def _check_ledger(ledger: Ledger, header: LedgerHeader, folder: RunFolder, day: str | None) -> None:
    if ledger.header != header:
        raise UsageError(
            f"{folder.root}: the ledger belongs to another configuration or key; use another `run:` folder"
        )
    begun = ledger.bound(MADE_BY)
    if begun is None and all(row.kind == "open" or row.body.get("name") == BEGUN for row in ledger.rows):
        _bind_beginning(ledger, day)  # killed before it was written
    elif begun != VERSION:
        raise LedgerError(
            f"{folder.root}: this run was begun by tacit {begun or 'before 0.2'}, and this is {VERSION}, which may draw other noise "
            "for a step that is paid; end it with that version, or use another `run:` folder"
        )


def _has_spent_or_done(folder: RunFolder) -> bool:
    if folder.has_results or not folder.ledger.exists():
        return folder.has_results
    with Ledger.open(folder.ledger, readonly=True) as ledger:
        return ledger.has_paid


def _check_config(config: RunConfig, folder: RunFolder, start_over: bool) -> None:
    """Refuse a changed configuration once something was spent or released; before that, start over with the new one."""
    if folder.finetune_config.exists():
        raise UsageError(f"{folder.root}: this is the folder of a fine-tuning; use another `run:` folder")
    if folder.config.exists() and folder.ledger.exists():
        old = folder.load_config()
        differences = _differences(old, config)
        if differences:
            with Ledger.open(folder.ledger, readonly=True) as ledger:
                spent = ledger.has_paid
            if spent:
                raise another_configuration(folder, "this run", differences)
            if folder.release.exists():
                raise UsageError(
                    f"{folder.root}: its release was made with another configuration: {'; '.join(differences)}. Use another `run:` "
                    "folder"
                )
            if folder.has_results and not start_over:
                raise UsageError(
                    f"{folder.root}: what is there was made with another configuration: {'; '.join(differences)}. Remove it, or use "
                    "another `run:` folder"
                )
            _forget_start(folder)
    write_private_json(folder.config, config.model_dump(mode="json"))  # it names the private files


def _differences(old: RunConfig, config: RunConfig) -> list[str]:
    """The options that differ. Where an option was left out and its default has changed since, also the line that restores it."""
    found = config_differences(old.comparable(), config.comparable())
    before = old.vocabulary.method
    if before != config.vocabulary.method and "method" not in config.vocabulary.model_fields_set:
        found.append(f"vocabulary.method is left out, and its default has changed: write method: {before} to go on")
    return found


def _forget_start(folder: RunFolder) -> None:
    """Remove what a start that spent nothing left. The key goes too, and the ledger last, its log before it.

    So a new ledger never meets an old log or an old key, and whoever is killed on the way finds the old configuration again.
    """
    keys = {folder.private / "key", folder.private / "key.new"}
    made = sorted(
        folder.private.iterdir(), key=lambda path: path in keys
    )  # all of it: a stage is done where its result is
    ledgers = sorted(folder.root.glob("ledger.sqlite*"), key=lambda path: path == folder.ledger)
    for path in (*made, *ledgers):
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink()


def _refuse_lost_ledger(folder: RunFolder, key: Path) -> None:
    """Results without their ledger were paid for in a ledger that is gone; a key without one may have made noise that was seen.

    Raises:
        LedgerError, RefusedError: there is such a thing.
    """
    results = [
        *folder.private.glob("vocabulary/*"),
        *folder.private.glob("checkpoints/*"),
        *folder.private.glob("screened*"),
        *folder.private.glob("scores*"),
        *folder.root.glob("release/*"),
    ]
    if results:
        raise LedgerError(
            f"{folder.ledger}: the ledger is missing but the run has results, whose privacy was paid for in it; "
            "restore it, or use another `run:` folder"
        )
    if key.exists():
        raise RefusedError(
            "key-without-ledger",
            f"{key} is there and {folder.ledger} is not: a key that was used before would put the same noise on other sums. Restore "
            "the ledger, or remove the whole folder; a public key is asked for by the option seed",
        )
