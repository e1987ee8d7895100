"""Where a run's ledger is while it is written: in the run folder, or on a local disk beside a run folder that machines share.

SQLite's write-ahead log is not made for network file systems. With ``ledger_folder`` the ledger is on a local disk while a start
works, and the run folder has a link to it; at the start's end the file itself takes the link's place. So what stands in the run
folder says which one is true: a file is the whole ledger, and a link says that a start was killed, whose ledger is on the machine
that the link leads to. Elsewhere the link leads nowhere, and the run is refused there as one without its ledger.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from tacit.errors import LedgerError, UsageError
from tacit.files import write_atomically
from tacit.runs.file_systems import mounts, network_file_system

__all__ = ["held", "link", "place_for", "refuse_lost", "refuse_network"]


def refuse_network(folder: Path, table: str) -> None:
    """Refuse a folder in which a ledger is to be written.

    Args:
        table: of this machine's `mounts`.

    Raises:
        UsageError: it lies on a network file system.
    """
    kind = network_file_system(folder, table)
    if kind is not None:
        raise UsageError(
            f"{folder}: this is a network file system ({kind}), on which the ledger's write-ahead log is not safe; name a folder on "
            "a local disk as `ledger_folder:`, where the ledger is held while the run works, or use another `run:` folder"
        )


def place_for(ledger: Path, folder: Path) -> Path:
    """The file of a run's ledger in a folder that several runs may share."""
    run = ledger.parent.resolve()
    return folder / f"{run.name}-{hashlib.sha256(os.fsencode(run)).hexdigest()[:12]}.sqlite"


@contextmanager
def held(ledger: Path, folder: Path | None) -> Iterator[Path]:
    """Where the run's ledger is to be written, or made, while this is open; at the end it is back in the run folder.

    Args:
        ledger: the run folder's, where a link may stand.
        folder: on a local disk; None: the run folder.

    Raises:
        UsageError: it would lie on a network file system.
        LedgerError: an earlier start was killed, and its ledger is on another machine, or gone.
    """
    place = ledger
    if ledger.is_symlink():
        refuse_lost(ledger)
    elif folder is None:
        refuse_network(ledger.parent, mounts())
    else:
        refuse_network(folder, mounts())
        folder.mkdir(parents=True, exist_ok=True)
        place = place_for(ledger, folder)
        _remove(place)  # what is there was given back, or never paid
        if ledger.exists():
            _copy(ledger, place)  # whose end folds the log in
        _refuse_log(ledger)
        if ledger.exists():
            link(ledger, place)
    try:
        yield place
    finally:
        if ledger.is_symlink() and ledger.exists():
            _give_back(ledger)


def link(ledger: Path, place: Path) -> None:
    """Make the ledger at ``place`` the run's from now on."""
    if ledger != place:
        partial = ledger.with_name(f".{ledger.name}.link")
        partial.unlink(missing_ok=True)
        partial.symlink_to(place.resolve())
        os.replace(partial, ledger)


def refuse_lost(ledger: Path) -> None:
    """Whatever is asked of the run folder: what it has paid is not known here.

    Raises:
        LedgerError: there is a link that leads nowhere.
    """
    if ledger.is_symlink() and not ledger.exists():
        raise LedgerError(
            f"{ledger}: a start that was killed has left the ledger as {os.readlink(ledger)} on the machine where it ran; go on "
            "there, or bring that file, and the one with -wal at its end, to the same place here"
        )


def _refuse_log(ledger: Path) -> None:
    """A log that stays behind would be read into the ledger that comes back."""
    log = ledger.with_name(f"{ledger.name}-wal")
    if log.exists():
        raise LedgerError(
            f"{log}: another process reads the ledger, or has left its log; wait for it, or bring {ledger.name} back"
        )


def _give_back(ledger: Path) -> None:
    """The file in place of the link, whole and synced, before the local one goes."""
    place = ledger.resolve()
    whole = place.with_name(f"{place.name}.whole")
    _remove(whole)
    _copy(place, whole)  # by SQLite on the local disk, with what a reader keeps in the log
    write_atomically(ledger, lambda partial: _copy_bytes(whole, partial))
    _remove(whole)
    _remove(place)


def _copy(source: Path, target: Path) -> None:
    """All rows, those of a write-ahead log too."""
    with closing(sqlite3.connect(source, timeout=10)) as old, closing(sqlite3.connect(target)) as new:
        old.backup(new)


def _copy_bytes(source: Path, target: Path) -> None:
    shutil.copyfile(source, target)


def _remove(place: Path) -> None:
    for end in ("-wal", "-shm", ""):
        place.with_name(place.name + end).unlink(missing_ok=True)
