"""The shape of a model, from its options or from a local Hugging Face folder, and where that has its weights. Needs no torch."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tacit.config.adapter import AdapterOptions
from tacit.config.base import MOST
from tacit.config.kinds import KINDS, ModelShape, kind_named, kind_of_config, one_of
from tacit.config.model import ModelOptions, Trained
from tacit.errors import DataError
from tacit.files import refuse_pipes

__all__ = [
    "ModelShape",
    "adapter_parameters",
    "folder_shape",
    "missing_folder",
    "read_config",
    "shape_of",
    "stored_shapes",
    "tagger_shape",
    "tensor_shapes",
    "trained_of",
    "weight_files",
]


_LONGEST_HEADER = 100_000_000
"""Bytes of a safetensors header, as the format allows."""

_HUB_NAME = re.compile(r"[A-Za-z0-9][\w.-]*(/[A-Za-z0-9][\w.-]*)?")


def shape_of(options: ModelOptions) -> ModelShape:
    """The shape of the model that a run trains.

    Raises:
        DataError: see `folder_shape`.
    """
    kind = options.row
    if options.folder is not None:
        if not options.resolved_folder.exists():
            raise missing_folder(options.folder, options.resolved_folder)
        return folder_shape(options.resolved_folder, kind.name)
    return ModelShape(
        kind=kind,
        layers=options.layers,
        width=options.width,
        embedding=options.width,
        tied=kind.tied,
        heads=options.heads if kind.has_heads else None,
        key_value_heads=options.heads if "key_value_heads" in kind.keys else None,
        intermediate=options.intermediate_width if "intermediate" in kind.keys else 0,
        positions=options.length if "positions" in kind.keys else None,
        token_types=2 if "token_types" in kind.keys else 0,
    )


def missing_folder(named: str, folder: Path) -> DataError:
    """That there is no folder of a model, and how it comes here: as a run's release, or from the Hub if the name is one of there.

    Args:
        named: as the configuration names it, such as ``bert-base-uncased`` or ``organisation/name``.
        folder: where that is.
    """
    run = _run_of(folder)
    if run is not None:
        return DataError(
            f"{folder}: there is no such folder; it is of the release of {run}, a run that must be made first: `tacit run` of its "
            "configuration"
        )
    if not _HUB_NAME.fullmatch(named):
        return DataError(f"{folder}: there is no such folder; give the folder of a saved model")
    place = f"models/{named.rpartition('/')[2]}"
    return DataError(
        f"{folder}: there is no such folder, and nothing is downloaded: for a model of the Hugging Face Hub run `hf download {named} "
        f"--local-dir {place}` on a machine with a network, bring the folder here, and name it: folder: {place}"
    )


def _run_of(folder: Path) -> Path | None:
    """The run in whose release a folder lies, by its name.

    >>> _run_of(Path("runs/notes/release/model")), _run_of(Path("models/release"))
    (PosixPath('runs/notes'), None)
    """
    parts = folder.parts
    at = max((place for place, part in enumerate(parts[:-1]) if part == "release"), default=0)
    return Path(*parts[:at]) if at else None


def read_config(folder: Path) -> tuple[str, dict[str, Any]]:
    """The kind of the model in a folder, and the values of its config.json.

    Raises:
        DataError: there is none that can be read, or the model is of no kind that is trained here.
    """
    refuse_pipes(folder)
    try:
        values = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        raise DataError(f"{folder} has no config.json that can be read; give the folder of a saved model") from None
    kind = kind_of_config(values) if isinstance(values, dict) else None
    if kind is None:
        model_type = values.get("model_type") if isinstance(values, dict) else None
        raise DataError(
            f"{folder} holds a model of type {model_type!r} that is asked neither for next nor for masked tokens; give one whose "
            "config.json names a ...ForCausalLM or a ...ForMaskedLM under architectures"
        )
    return kind.name, values


def folder_shape(folder: Path, *wanted: str) -> ModelShape:
    """The shape of the model in a local Hugging Face folder.

    Args:
        wanted: names of kinds, one of which it is to be.

    Raises:
        DataError: as `read_config`; another kind of model; a number is missing or none; or the model has a form that is not
            trained here.
    """
    name, values = read_config(folder)
    kind = kind_named(name)
    if name not in wanted:
        other = one_of(map(kind_named, wanted))
        raise DataError(f"{folder} holds a model of type {values['model_type']!r}; give the folder of a {other}")
    objection = kind.objection(values)
    if objection is not None:
        raise DataError(f"{folder} holds a {name} {objection}; give the folder of a plain {name}")
    values = kind.completed(values)
    numbers: dict[str, Any] = {
        part: _number(folder, values, key)
        for part, key in kind.keys.items()
        if part not in kind.may_lack or values.get(key) is not None
    }
    tied = bool(values.get("tie_word_embeddings", kind.tied))
    stored = sum(math.prod(shape) for shape in stored_shapes(folder).values()) if kind.counts_stored else None
    return ModelShape(kind=kind, tied=tied, vocabulary=_number(folder, values, "vocab_size"), stored=stored, **numbers)


def tagger_shape(folder: Path) -> ModelShape:
    """The shape of the model in a folder, of a kind that tags words. Raises as `folder_shape`."""
    return folder_shape(folder, *(kind.name for kind in KINDS.values() if kind.tagger is not None))


def _number(folder: Path, values: Mapping[str, Any], key: str) -> int:
    value = values.get(key)
    if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= MOST:
        raise DataError(
            f"{folder}: config.json has no whole number {key} from 1 to 2**40; save the model with transformers"
        )
    return value


def stored_shapes(folder: Path) -> dict[str, tuple[int, ...]]:
    """The shape of each tensor in a folder's files of weights. Raises as `weight_files` and `tensor_shapes`."""
    return {name: shape for path in weight_files(folder) for name, shape in tensor_shapes(path).items()}


def tensor_shapes(path: Path) -> dict[str, tuple[int, ...]]:
    """The shape of each tensor in a safetensors file, by its header alone.

    Raises:
        DataError: it is none.
    """
    try:
        with path.open("rb") as file:
            size = int.from_bytes(file.read(8), "little")
            if size > _LONGEST_HEADER:
                raise ValueError
            header = json.loads(file.read(size))
        tensors = {name: entry["shape"] for name, entry in header.items() if name != "__metadata__"}
        return {name: tuple(int(one) for one in shape) for name, shape in tensors.items()}
    except (OSError, ValueError, LookupError, TypeError, AttributeError, RecursionError):
        raise DataError(f"{path}: no safetensors file; save the model again with transformers") from None


_TABLES = """
embed_in embed_positions embed_tokens position_embeddings relative_attention_bias tok_embeddings token_type_embeddings
word_embeddings wpe wte
"""
_NO_LAYER = frozenset(_TABLES.split())
_HEADS = frozenset({"decoder", "embed_out", "lm_head", "output"})


def adapter_parameters(options: AdapterOptions, folder: Path) -> int:
    """About how many parameters an adapter of the model in a folder has, by the sizes of the layers in its files.

    Exact where its layers are called as transformers calls them: which of them peft adapts is seen when the model is loaded.

    Raises:
        DataError: as `stored_shapes`.
    """
    matrices = [(name.split("."), shape) for name, shape in stored_shapes(folder).items() if len(shape) == 2]
    return sum(
        options.rank * sum(shape)
        for path, shape in matrices
        if path[-1] == "weight" and _has_adapter(options, path[-2])
    )


def trained_of(trained: Trained, folder: Path) -> int:
    """About how many parameters of the model in a folder are trained, by names and sizes in its files. Raises as `stored_shapes`."""
    shapes = [(name.split("."), shape) for name, shape in stored_shapes(folder).items()]
    if trained == "biases-and-norms":
        return sum(shape[0] for _, shape in shapes if len(shape) == 1)
    tables = _NO_LAYER if trained == "without-embeddings" else frozenset[str]()
    return sum(math.prod(shape) for path, shape in shapes if len(path) < 2 or path[-2] not in tables)


def _has_adapter(options: AdapterOptions, layer: str) -> bool:
    if options.targets == "all-linear":
        return layer not in _NO_LAYER and layer not in _HEADS
    return layer in options.targets


def weight_files(folder: Path) -> list[Path]:
    """The files that hold the weights of the model in a folder: safetensors only, since reading a pickle can run code.

    Raises:
        DataError: there is no such folder, there are none, or not all that the index names.
    """
    if not folder.exists():
        raise missing_folder(str(folder), folder)
    index = folder / "model.safetensors.index.json"
    names = ["model.safetensors"]
    if not (folder / names[0]).is_file() and index.is_file():
        try:
            names = sorted({str(name) for name in json.loads(index.read_text(encoding="utf-8"))["weight_map"].values()})
        except (OSError, ValueError, LookupError, TypeError, AttributeError):
            raise DataError(f"{index}: no index of weights; save the model again with transformers") from None
    for name in names:
        if Path(name).name != name or not (folder / name).is_file():
            raise DataError(
                f"{folder}: its weights cannot be read: there is no {name}, and pickled ones could run code; save the model again"
            )
    return [folder / name for name in names]
