"""Damaged and hostile model folders: pickles, code that asks to be run, other shapes, weights that are no numbers, links."""

from __future__ import annotations

import json
import os
import pickle
import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from tests.entities.annotated import finetune_values, write_notes
from tests.folders import FOLDERS
from tests.small import SENTINEL, small_values, write_corpora

from hostile.attack import Attack, Outcome, Setting
from hostile.cases import config_in, given_model
from hostile.children import Child
from hostile.inputs import EXECUTED, judged, pickled, try_input
from hostile.mutations import BYTES, DEEP

__all__ = ["FOLDERS_ATTACK"]

_EACH = 5
_JUNK: tuple[Any, ...] = (
    None,
    0,
    -1,
    1.5,
    "x",
    [],
    {},
    True,
    10**12,
    10**400,
    float("nan"),
    "gpt2\x1b[31m",
    [1, 2],
    {"a": 1},
)
Change = Callable[[random.Random, Path, Path], None]


def _code(mark: Path) -> str:
    return f"open({str(mark)!r}, 'w')\nclass C:\n    pass\n"


def _edit(path: Path, **values: Any) -> None:
    path.write_text(json.dumps({**json.loads(path.read_text()), **values}))


def _pickle_for_weights(rng: random.Random, folder: Path, mark: Path) -> None:
    """Where transformers would look, and under the name of safetensors."""
    data = pickled(mark)
    weights = folder / "model.safetensors"
    if rng.random() < 0.5:
        weights.write_bytes(data)
    else:
        weights.unlink()
    for name in ("pytorch_model.bin", "training_args.bin", "optimizer.pt", "model.pt", "tf_model.h5", "scheduler.pt"):
        (folder / name).write_bytes(data)


def _torch_pickle(rng: random.Random, folder: Path, mark: Path) -> None:
    """The weights as torch saved them once, with a payload beside the tensors."""
    from hostile.inputs import Payload

    state = load_file(folder / "model.safetensors")
    (folder / "model.safetensors").unlink()
    torch.save({**state, "payload": Payload(mark)}, folder / "pytorch_model.bin")


def _remote_code(rng: random.Random, folder: Path, mark: Path) -> None:
    names = (
        "AutoConfig",
        "AutoModel",
        "AutoModelForCausalLM",
        "AutoModelForMaskedLM",
        "AutoModelForTokenClassification",
    )
    own = dict.fromkeys(names, "modeling_own.C")
    kind = {} if rng.random() < 0.5 else {"model_type": "own", "architectures": ["C"]}
    _edit(
        folder / "config.json",
        auto_map=own,
        trust_remote_code=True,
        custom_pipelines={"x": {"impl": "modeling_own.C"}},
        **kind,
    )
    _edit(
        folder / "tokenizer_config.json",
        auto_map={"AutoTokenizer": ["modeling_own.C", "modeling_own.C"]},
        tokenizer_class="C",
    )
    for name in (
        "modeling_own.py",
        "tokenization_own.py",
        "configuration_own.py",
        "__init__.py",
        "setup.py",
        "conftest.py",
    ):
        (folder / name).write_text(_code(mark))
    (folder / "custom_generate").mkdir()
    (folder / "custom_generate" / "generate.py").write_text(_code(mark))
    (folder / "requirements.txt").write_text("nothing\n")


def _asks_for_more(rng: random.Random, folder: Path, mark: Path) -> None:
    """Options with which transformers loads adapters, quantisers, kernels, or other folders."""
    choices: tuple[dict[str, Any], ...] = (
        {"quantization_config": {"quant_method": rng.choice(("bitsandbytes", "gptq", "own")), "load_in_8bit": True}},
        {"_attn_implementation": rng.choice(("flash_attention_2", "kernels-community/own", "own"))},
        {"torch_dtype": rng.choice(("float16", "own", 5))},
        {"_name_or_path": "/etc/passwd", "base_model_name_or_path": "https://example.org/own"},
        {"is_decoder": True, "add_cross_attention": True, "pruned_heads": {"0": [0, 1]}},
        {"tie_word_embeddings": False, "use_kernels": True, "device_map": "auto"},
    )
    _edit(folder / "config.json", **rng.choice(choices))
    (folder / "adapter_config.json").write_text(
        json.dumps({"peft_type": "LORA", "base_model_name_or_path": "x", "auto_mapping": {"m": "x"}})
    )
    (folder / "adapter_model.bin").write_bytes(pickled(mark))


def _weights(change: Callable[[random.Random, dict[str, torch.Tensor]], None]) -> Change:
    def apply(rng: random.Random, folder: Path, mark: Path) -> None:
        state = load_file(folder / "model.safetensors")
        change(rng, state)
        save_file({name: tensor.contiguous() for name, tensor in state.items()}, folder / "model.safetensors")

    return apply


def _other_shape(rng: random.Random, state: dict[str, torch.Tensor]) -> None:
    name = rng.choice(sorted(state))
    shape = tuple(max(0, size + rng.choice((-1, 0, 1, 5))) for size in state[name].shape)
    state[name] = torch.zeros(rng.choice((shape, (), (0,), (1, 2, 3))))


def _no_numbers(rng: random.Random, state: dict[str, torch.Tensor]) -> None:
    name = rng.choice(sorted(state))
    state[name].view(-1)[: rng.choice((1, None))] = rng.choice((float("nan"), float("inf"), -float("inf"), 3e38))


def _other_type(rng: random.Random, state: dict[str, torch.Tensor]) -> None:
    name = rng.choice(sorted(state))
    state[name] = state[name].to(rng.choice((torch.int8, torch.float64, torch.bfloat16, torch.bool, torch.complex64)))


def _missing(rng: random.Random, state: dict[str, torch.Tensor]) -> None:
    name = rng.choice(sorted(state))
    state[rng.choice((name + ".own", "own", "x" * 1000))] = state.pop(name)


def _bytes_of(pattern: str) -> Change:
    """One file of the folder, damaged as bytes."""

    def apply(rng: random.Random, folder: Path, mark: Path) -> None:
        path = rng.choice(sorted(folder.glob(pattern)))
        path.write_bytes(BYTES[rng.choice(tuple(BYTES))](rng, path.read_bytes()))

    return apply


def _header(rng: random.Random, folder: Path, mark: Path) -> None:
    """A safetensors file whose header says something else than the file holds."""
    path = folder / "model.safetensors"
    data = path.read_bytes()
    size = int.from_bytes(data[:8], "little")
    header = json.loads(data[8 : 8 + size])
    name = rng.choice([key for key in header if key != "__metadata__"])
    header[name] |= rng.choice(
        (
            {"data_offsets": [0, 1 << 60]},
            {"shape": [1 << 40]},
            {"dtype": "OWN"},
            {"data_offsets": [-4, 4]},
            {"shape": [-1]},
        )
    )
    text = json.dumps(header).encode()
    size = rng.choice((len(text), len(text), 1 << 62, 0, len(data)))
    path.write_bytes(size.to_bytes(8, "little") + text + data[8:])


def _json_value(name: str) -> Change:
    """One value of a JSON file, anywhere in it."""

    def apply(rng: random.Random, folder: Path, mark: Path) -> None:
        path = folder / name
        values = json.loads(path.read_text())
        holder = values
        for _ in range(rng.choice((0, 0, 1, 2, 3))):
            inner = [
                value
                for value in (holder.values() if isinstance(holder, dict) else holder)
                if isinstance(value, dict | list) and value
            ]
            holder = rng.choice(inner) if inner else holder
        key = rng.choice(sorted(holder)) if isinstance(holder, dict) else rng.randrange(len(holder))
        if rng.random() < 0.2:
            del holder[key]
        else:
            holder[key] = rng.choice(_JUNK)
        path.write_text(json.dumps(values))

    return apply


def _linked(rng: random.Random, folder: Path, mark: Path) -> None:
    path = rng.choice(sorted(folder.iterdir()))
    path.unlink()
    way = rng.choice(("/etc/passwd", "/dev/zero", "/dev/full", path, "/nowhere", "pipe", "folder"))
    if way == "pipe":
        os.mkfifo(path)
    elif way == "folder":
        path.mkdir()
    else:
        path.symlink_to(way)


def _index(rng: random.Random, folder: Path, mark: Path) -> None:
    """Weights in parts, by an index that points elsewhere."""
    (folder / "model.safetensors").rename(folder / "part.safetensors")
    where = rng.choice(
        ("../../../etc/passwd", "/etc/passwd", "part.bin", "part.safetensors", "", 5, "model.safetensors")
    )
    names = list(load_file(folder / "part.safetensors"))
    index = {"metadata": {}, "weight_map": rng.choice((dict.fromkeys(names, where), [], {}, {"x": where}))}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    (folder / "part.bin").write_bytes(pickled(mark))


def _deep_json(rng: random.Random, folder: Path, mark: Path) -> None:
    name = rng.choice(
        ("config.json", "tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "certificate.json")
    )
    (folder / name).write_text(rng.choice(('{"a":', "[")) * DEEP)


_CHANGES: dict[str, Change] = {
    "a pickle for weights": _pickle_for_weights,
    "torch's own pickle": _torch_pickle,
    "code of its own": _remote_code,
    "asks for more": _asks_for_more,
    "other shapes": _weights(_other_shape),
    "weights that are no numbers": _weights(_no_numbers),
    "another type": _weights(_other_type),
    "a weight missing": _weights(_missing),
    "weights damaged": _bytes_of("model.safetensors"),
    "a false header": _header,
    "tokenizer damaged": _bytes_of("tokenizer*.json"),
    "a value of the tokenizer": _json_value("tokenizer.json"),
    "config damaged": _bytes_of("config.json"),
    "a value of the config": _json_value("config.json"),
    "a value beside the tokenizer": _json_value("tokenizer_config.json"),
    "links and pipes": _linked,
    "an index that points elsewhere": _index,
    "nested 100,000 deep": _deep_json,
}

_COMMANDS = ("plan", "vocabulary", "training", "fine-tuning")
_ROWS = tuple(
    f"{kind}, {command}" for command in _COMMANDS for kind in FOLDERS if command != "fine-tuning" or kind == "bert"
)


def _configured(folder: Path, shared: Path, command: str) -> list[str | Path]:
    given = folder / "given"
    if command == "fine-tuning":
        values = finetune_values(folder, given, documents={"path": str(shared / "notes")})
        values["training"] |= {"steps": 1}
        return ["finetune", config_in(folder, values, folder / "run")]
    values = small_values(shared, model=given_model(given, length=24), audit=None)
    del values["vocabulary"]
    values["phases"] = [{**phase, "steps": 1} for phase in values["phases"]]
    config = config_in(folder, values, folder / "run")
    return ["plan", config] if command == "plan" else ["run", config, "--until", command]


def _shared(setting: Setting) -> Path:
    """Corpora and sound folders, made once by each process."""
    folder = setting.root / f"folders-{os.getpid()}"
    if not folder.exists():
        folder.mkdir(parents=True)
        write_corpora(folder, patients=120, records=300)
        write_notes(folder / "notes")
        for kind, make in FOLDERS.items():
            make(folder / kind)
    return folder


def _trial(setting: Setting, row: str, number: int) -> Outcome:
    kind, command = row.split(", ")
    shared, wrong, codes = _shared(setting), [], []
    with setting.trial("folders", row, number) as place:
        for attempt in range(_EACH):
            folder = place.folder / f"at-{attempt}"
            shutil.copytree(shared / kind, folder / "given")
            way = place.rng.choice(tuple(_CHANGES))
            _CHANGES[way](place.rng, folder / "given", folder / EXECUTED)
            ended = try_input(_configured(folder, shared, command), folder)
            codes.append(ended.code)
            said = judged(ended, folder, (SENTINEL,))
            wrong += [f"{way}: {said}"] if said else []
    return Outcome(_EACH, tuple(wrong), tuple(f"exit {code}" for code in codes))


def _unpickling() -> None:
    """A known-wrong `tacit`: weights are unpickled, as they were everywhere once."""
    import tacit.models.given as given

    def wrong(path: Path) -> Any:
        return pickle.loads(path.read_bytes())

    given.load_file = wrong


def _control(setting: Setting) -> Outcome:
    with setting.trial("folders", "control", 0) as place:
        shared = _shared(setting)
        shutil.copytree(shared / "bert", place.folder / "given")
        (place.folder / "given" / "model.safetensors").write_bytes(pickled(place.folder / EXECUTED))
        arguments = _configured(place.folder, shared, "vocabulary")
        Child(arguments, place.folder / "said", prepare=_unpickling).end()
        return Outcome(1, ("planted code was executed",) if (place.folder / EXECUTED).exists() else ())


FOLDERS_ATTACK = Attack(
    title="Damaged and hostile model folders",
    says=(
        f"A BERT, a GPT-2 and an LSTM folder, changed in one of {len(_CHANGES)} ways (`hostile/folders.py`), given to a run or "
        "a fine-tuning. Pickles and modules would make a file when read. Expected: as for damaged corpora, no planted code "
        "executed."
    ),
    rows=_ROWS,
    count=2000,
    a_trial=_EACH,
    trial=_trial,
    control_says="a reader of weights that takes pickles",
    control=_control,
)
