"""Arrow's IPC files, streams or with a footer, and the folders of such that ``datasets`` saves. No record is known here."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa

from tacit.corpus.lines import attempt
from tacit.corpus.places import Place, native_file
from tacit.errors import DataError

__all__ = ["arrow_batches", "broken_arrow", "checked_batch", "saved_dataset"]


def broken_arrow(path: Place) -> str:
    """What an error says of a file that cannot be read."""
    return f"{path}: this is not a readable Arrow file, stream or not; write it again"


def saved_dataset(folder: Place) -> list[Place] | None:
    """The data files, in their order, of a folder that ``datasets`` has saved; None of another folder.

    It is told by an object that ``datasets`` wrote: a document of that name holds an array of objects, as all do in JSON.

    Raises:
        DataError: it holds several datasets, or names files that are not in it.
    """
    if _list_in(folder / "dataset_dict.json", "splits") is not None:
        raise DataError(
            f"{folder}: several datasets are saved here, one a split; name the folder of one, such as {folder}/train"
        )
    state = _list_in(folder / "state.json", "_data_files")
    if state is None:
        return None
    names = [one.get("filename") if isinstance(one, dict) else None for one in state["_data_files"]]
    if state.get("_indices_data_files"):
        raise DataError(
            f"{folder}: an old version of datasets chose among its rows by a file; load it and save it again"
        )
    if not names or not all(isinstance(name, str) and _is_inside(folder, name) for name in names):
        raise DataError(f"{folder}: state.json names files that are not in this folder; save the dataset again")
    return [folder / str(name) for name in names]


def _list_in(path: Place, name: str) -> dict[str, Any] | None:
    """The object that ``datasets`` has written there, with a list of this name; None where there is no such file, or another one."""
    if not path.is_file():  # a pipe would be waited for
        return None
    try:
        state = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError):
        return None
    return state if isinstance(state, dict) and isinstance(state.get(name), list) else None


def _is_inside(folder: Place, name: str) -> bool:
    return name == Path(name).name and (folder / name).is_file()


@contextmanager
def arrow_batches(path: Place) -> Iterator[tuple[list[str], Iterator[pa.RecordBatch]]]:
    """Names of the columns, and batches."""
    problem = broken_arrow(path)
    with attempt(lambda: native_file(path), (pa.ArrowException, OSError), problem) as file:
        opened = attempt(lambda: _opened_arrow(file), (pa.ArrowException, OSError), problem)
        with opened:
            if isinstance(opened, pa.RecordBatchFileReader):
                batches = (opened.get_batch(number) for number in range(opened.num_record_batches))
            else:
                batches = iter(opened)
            yield attempt(lambda: list(opened.schema.names), (ValueError,), problem), batches


def _opened_arrow(file: pa.NativeFile) -> pa.RecordBatchFileReader | pa.RecordBatchStreamReader:
    with_footer = file.read(6) == b"ARROW1"
    file.seek(0)
    return pa.ipc.open_file(file) if with_footer else pa.ipc.open_stream(file)


def checked_batch(batch: pa.RecordBatch, names: Sequence[str]) -> pa.RecordBatch:
    """The columns that are read. Unlike Parquet's, their bytes are used as they are, so lengths and UTF-8 are looked at first."""
    chosen = batch.select(list(names))
    chosen.validate(full=True)
    return chosen
