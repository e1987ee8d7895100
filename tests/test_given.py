"""Runs with a given tokenizer and from a local model folder: what they plan, bind, release, and refuse before anything is written."""

from __future__ import annotations

import functools
import html
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save, save_file
from transformers import AutoModelForCausalLM, AutoModelForMaskedLM, AutoTokenizer, PreTrainedModel

from tacit.config import RunConfig, config_differences, parse_config
from tacit.config.shape import shape_of
from tacit.errors import LedgerError, TacitError, UsageError
from tacit.files import read_json
from tacit.models.transfer import rows_of_pieces
from tacit.pipeline.corpus import private_units, public_units
from tacit.pipeline.opening import load_given, open_run
from tacit.pipeline.pages import report_run
from tacit.pipeline.rows import rows_of, tokenized
from tacit.pipeline.stages import run
from tacit.planning import make_plan, mechanisms_from_ledger, vocabulary_size
from tacit.planning.given import fingerprints, given_tokenizer
from tacit.privacy.ledger import Ledger
from tacit.privacy.strict_json import read_number
from tacit.runs.folder import RunFolder
from tacit.vocabulary.given import read_given

from .dialogues import write_dialogues
from .folders import FOLDERS, byte_bpe, edit_json, gpt2_folder, save_tokenizer
from .small import small_values, write_config, write_corpora
from .test_screened_run import values as screened_values

LENGTH = 24
every_kind = pytest.mark.parametrize("kind", FOLDERS)
CAUSAL_AUDIT = {"canaries": 3, "copies": 2, "digits": 2}


def without_vocabulary(values: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if name != "vocabulary"}


def from_folder(folder: Path, given: Path, **sections: Any) -> dict[str, Any]:
    """A run that starts from a model folder with its own tokenizer."""
    model = {"folder": str(given), "public": True, "length": LENGTH}
    return without_vocabulary(small_values(folder, **{"model": model, "audit": None, **sections}))


def with_tokenizer(folder: Path, given: Path, **sections: Any) -> dict[str, Any]:
    """A run that trains a GPT-2 from scratch with a given tokenizer."""
    model = {"kind": "gpt2", "layers": 1, "width": 16, "heads": 2, "length": LENGTH}
    vocabulary = {"method": "given", "path": str(given), "public": True}
    return small_values(folder, **{"model": model, "vocabulary": vocabulary, "audit": None, **sections})


# the configuration ---------------------------------------------------------------------------------------------------


def test_runs_without_anything_given_keep_their_digest(tmp_path: Path) -> None:
    """What they would be asked to compare has no new option."""
    dumped = parse_config(small_values(tmp_path)).model_dump(mode="json")
    assert "folder" not in dumped["model"]
    assert "path" not in dumped["vocabulary"]


def test_the_digest_changes_with_what_is_given(tmp_path: Path) -> None:
    values = [small_values(tmp_path), *(with_tokenizer(tmp_path, Path(name), model={}) for name in ("one", "other"))]
    models = [{"kind": "bert", "folder": name} for name in ("one", "other")]
    values += [with_tokenizer(tmp_path, Path("one"), model=model) for model in models]
    assert len({parse_config(each).digest() for each in values}) == len(values)


def test_a_folder_says_the_kind_and_the_tokenizer(tmp_path: Path) -> None:
    for kind, make in FOLDERS.items():
        given = make(tmp_path / kind)
        config = parse_config(from_folder(tmp_path, given))
        assert config.model.kind == kind
        assert (config.vocabulary.method, config.vocabulary.path) == ("given", str(given))
        again = parse_config(config.model_dump(mode="json"))
        assert again.digest() == config.digest()
        assert config_differences(config.comparable(), again.comparable()) == []


def test_a_stored_configuration_is_read_without_the_folder(tmp_path: Path) -> None:
    given = gpt2_folder(tmp_path / "given")
    config = parse_config(from_folder(tmp_path, given))
    shutil.rmtree(given)
    assert parse_config(config.model_dump(mode="json")).digest() == config.digest()


def test_another_tokenizer_may_be_named(tmp_path: Path) -> None:
    given = gpt2_folder(tmp_path / "given")
    save_tokenizer(byte_bpe(), tmp_path / "other", eos_token="<|endoftext|>")
    vocabulary = {"method": "given", "path": str(tmp_path / "other" / "tokenizer.json")}
    config = parse_config({**from_folder(tmp_path, given), "vocabulary": vocabulary})
    assert config.vocabulary.path == vocabulary["path"]
    assert parse_config({**from_folder(tmp_path, given), "vocabulary": {"method": "given"}}).vocabulary.path == str(
        given
    )


@pytest.mark.parametrize(
    ("section", "options", "message"),
    [
        ("model", {"layers": 2}, "model.layers: the model in model.folder decides this"),
        ("model", {"new_vocabulary": True}, "model.new_vocabulary: only a bert"),
        ("model", {"intermediate": 24}, "model.intermediate: the model in model.folder decides this"),
        ("vocabulary", {"method": "public"}, "vocabulary.method is public"),
        ("vocabulary", {"size": 400}, "vocabulary.method is weighted"),
        ("vocabulary", {"method": "given", "size": 400}, "vocabulary.size: the given tokenizer decides this"),
        ("vocabulary", {"method": "given", "noise_stddev": 6.0}, "vocabulary.noise_stddev: the given tokenizer"),
    ],
)
def test_what_the_folder_decides_must_not_be_said_beside_it(
    tmp_path: Path, section: str, options: dict[str, Any], message: str
) -> None:
    values = from_folder(tmp_path, gpt2_folder(tmp_path / "given"))
    with pytest.raises(UsageError, match=message):
        parse_config({**values, section: {**values.get(section, {}), **options}})


@pytest.mark.parametrize("vocabulary", [{"method": "given"}, {"path": "somewhere"}, {"method": "public", "path": "x"}])
def test_a_given_tokenizer_has_a_path_and_no_other_has(tmp_path: Path, vocabulary: dict[str, str]) -> None:
    with pytest.raises(UsageError, match="method: given needs a path"):
        parse_config(small_values(tmp_path, vocabulary=vocabulary))


# the plan ------------------------------------------------------------------------------------------------------------


@every_kind
def test_the_plan_reads_the_real_shape(tmp_path: Path, kind: str) -> None:
    given = FOLDERS[kind](tmp_path / "given")
    plan = make_plan(parse_config(from_folder(tmp_path, given)))
    weights = load_file(given / "model.safetensors")
    loader = AutoModelForMaskedLM if kind == "bert" else AutoModelForCausalLM
    model = loader.from_pretrained(given, local_files_only=True)
    assert plan.parameters == sum(parameter.numel() for parameter in model.parameters()) >= len(weights)
    assert plan.stages[0].mechanism == "given tokenizer"
    assert plan.stages[0].parameters == {"entries": model.config.vocab_size}
    assert plan.stages[0].event is None
    assert "vocabulary" not in plan.mechanisms.stages()


def test_a_larger_model_takes_more_time_and_memory(tmp_path: Path) -> None:
    plans = [
        make_plan(parse_config(from_folder(tmp_path, gpt2_folder(tmp_path / str(width), width=width))))
        for width in (16, 64)
    ]
    assert plans[0].memory_bytes < plans[1].memory_bytes
    assert plans[0].stages[1].seconds < plans[1].stages[1].seconds
    assert plans[0].epsilon == plans[1].epsilon


def test_a_given_tokenizer_costs_nothing(tmp_path: Path) -> None:
    """With the same noise in training, a histogram costs something beside it."""
    given = save_tokenizer(byte_bpe(), tmp_path / "given", eos_token="<|endoftext|>")
    plan, other = (
        make_plan(parse_config(make(tmp_path))) for make in (lambda f: with_tokenizer(f, given), small_values)
    )
    assert [stage.epsilon_alone for stage in plan.stages[:2]] == [0, 0]
    assert plan.stages[2].epsilon_joint == plan.stages[2].epsilon_alone == other.stages[2].epsilon_alone
    assert other.stages[2].epsilon_joint > plan.stages[2].epsilon_joint


@pytest.mark.slow
def test_planning_needs_no_torch(tmp_path: Path) -> None:
    path = write_config(tmp_path / "run.yaml", from_folder(tmp_path, gpt2_folder(tmp_path / "given")))
    code = (
        "import sys\nfrom pathlib import Path\nfrom tacit.config import load_config\nfrom tacit.planning import make_plan\n"
        f"make_plan(load_config(Path({str(path)!r})))\n"
        "assert not {'torch', 'transformers'} & set(sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_the_mask_of_redacted_text_is_counted(tmp_path: Path) -> None:
    given = gpt2_folder(tmp_path / "given")
    values = without_vocabulary(
        screened_values(tmp_path, model={"folder": str(given), "public": True, "length": LENGTH})
    )
    config = parse_config(values)
    assert shape_of(config.model).vocabulary == 300
    assert given_tokenizer(config).added == 1
    assert vocabulary_size(config) == 301


# what is refused before anything is written --------------------------------------------------------------------------


def _translator(values: dict[str, Any], given: Path) -> None:
    edit_json(given / "config.json", model_type="t5", architectures=["T5ForConditionalGeneration"])


def _pickle(values: dict[str, Any], given: Path) -> None:
    (given / "model.safetensors").rename(given / "pytorch_model.bin")


def _half(values: dict[str, Any], given: Path) -> None:
    weights = load_file(given / "model.safetensors")
    save_file(dict(sorted(weights.items())[1:]), given / "model.safetensors", {"format": "pt"})


def _other_tokenizer(values: dict[str, Any], given: Path) -> None:
    save_tokenizer(byte_bpe(310), given, eos_token="<|endoftext|>")


def _long_rows(values: dict[str, Any], given: Path) -> None:
    values["model"]["length"] = 33


def _another_kind(values: dict[str, Any], given: Path) -> None:
    values["model"]["kind"] = "lstm"


def _no_folder(values: dict[str, Any], given: Path) -> None:
    values["model"]["folder"] = "gpt2"


def _no_tokenizer(values: dict[str, Any], given: Path) -> None:
    (given / "tokenizer.json").unlink()


def _no_mask(values: dict[str, Any], given: Path) -> None:
    values["vocabulary"] = {"method": "given", "path": str(given), "public": True}
    values["model"] = {"kind": "bert", "layers": 1, "width": 16, "heads": 2, "length": LENGTH}


def _pipe(name: str) -> Callable[[dict[str, Any], Path], None]:
    """It kept the plan waiting for ever."""

    def spoil(values: dict[str, Any], given: Path) -> None:
        (given / name).unlink(missing_ok=True)
        os.mkfifo(given / name)

    spoil.__name__ = f"_pipe_{name}"
    return spoil


def _very_wide(values: dict[str, Any], given: Path) -> None:
    edit_json(given / "config.json", n_inner=10**400)


UNSUITABLE: list[tuple[Callable[[dict[str, Any], Path], None], int, str]] = [
    (_translator, 4, "model of type 't5'"),
    (_pickle, 4, "there is no model.safetensors"),
    (_half, 4, "no weights for 1 parameters"),
    (_other_tokenizer, 4, "knows 300 token ids and the tokenizer"),
    (_long_rows, 2, "model.length 33 is more than the 32 positions"),
    (_another_kind, 4, "give the folder of a lstm"),
    (_no_folder, 4, "hf download gpt2"),
    (_no_tokenizer, 4, "has no tokenizer.json"),
    *(
        (_pipe(name), 4, f"{name}: this is a pipe")
        for name in ("config.json", "tokenizer.json", "model.safetensors", "certificate.json")
    ),
    (_very_wide, 4, "no whole number n_inner from 1 to"),
    (_no_mask, 2, "has no mask_token, which model.kind bert needs"),
]


@pytest.mark.parametrize(("spoil", "code", "message"), UNSUITABLE, ids=[bad[0].__name__ for bad in UNSUITABLE])
def test_what_is_unsuitable_is_one_line_and_nothing_is_written(
    tmp_path: Path, spoil: Callable[[dict[str, Any], Path], None], code: int, message: str
) -> None:
    given = gpt2_folder(tmp_path / "given")
    values = from_folder(tmp_path, given)
    spoil(values, given)
    for command in (make_plan, run) if spoil is not _half else (run,):  # a plan reads no weights
        with pytest.raises(TacitError, match=message) as caught:
            command(parse_config(values))
        assert caught.value.exit_code == code
        assert "\n" not in str(caught.value)
        assert str(given) in str(caught.value) or spoil is _no_folder
    assert [entry.name for entry in tmp_path.iterdir()] == ["given"]


# whole runs ----------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def corpora(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("given")
    write_corpora(folder)
    return folder


def finish(values: dict[str, Any]) -> Path:
    return run(parse_config(values)).folder.root


@dataclass(frozen=True)
class Finished:
    """A finished run and its configuration."""

    values: dict[str, Any]
    folder: Path

    @property
    def given(self) -> Path:
        return Path(self.values["model"]["folder"])


@pytest.fixture(scope="module")
def finished(corpora: Path) -> Callable[[str], Finished]:
    """The run of a kind, made when it is first asked for."""

    @functools.cache
    def make(kind: str) -> Finished:
        given = FOLDERS[kind](corpora / kind)
        audit = {"canaries": 2, "probability": 0.2, "contexts": 2} if kind == "bert" else CAUSAL_AUDIT
        values = from_folder(corpora, given, run=str(corpora / f"{kind}-run"), audit=audit)
        return Finished(values, finish(values))

    return make


def release_of(run: Path) -> tuple[Any, PreTrainedModel]:
    """What transformers makes of it, offline."""
    folder = run / "release" / "model"
    causal = read_json(folder / "config.json")["model_type"] != "bert"
    loader = AutoModelForCausalLM if causal else AutoModelForMaskedLM
    tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True)
    return tokenizer, loader.from_pretrained(folder, local_files_only=True).eval()


def check_release(config: RunConfig, texts: list[str]) -> None:
    """The same ids as the rows of training, and the same logits as the trained model."""
    tokenizer, model = release_of(Path(config.run))
    with open_run(config) as state:
        trained = state.trained_model(state.mechanisms.phases[-1].name).eval()
        units = public_units(state)[0][:20] if config.public else []
        units = [*units, *(type(unit)(f"x{n}", (text,)) for n, text in enumerate(texts) for unit in units[:1])]
        stream, special = tokenized(state, units), state.special
        for number, unit in enumerate(units):
            rows = stream.rows_of(number)
            body = [i for row in rows for i in stream.ids_ST[row, 1 : stream.lengths_S[row] - 1].tolist()]
            assert body == [i for text in unit.texts for i in tokenizer(text, add_special_tokens=False)["input_ids"]]
        for row, length in enumerate(stream.lengths_S[:10]):
            ids = torch.from_numpy(stream.ids_ST[[row], :length].astype("int64"))
            assert (int(ids[0, 0]), int(ids[0, -1])) == (special.start, special.end)
            with torch.no_grad():
                assert torch.equal(model(input_ids=ids).logits, trained(input_ids=ids).logits)


@pytest.mark.slow
@every_kind
def test_the_release_gives_the_ids_and_logits_of_training(kind: str, finished: Callable[[str], Finished]) -> None:
    check_release(parse_config(finished(kind).values), ["  odd   spaces\n", "naïve жар 🙂", "37.5°C!"])


@pytest.mark.slow
@every_kind
def test_training_started_from_the_folder_and_moved(kind: str, finished: Callable[[str], Finished]) -> None:
    done = finished(kind)
    with open_run(parse_config(done.values)) as state:
        before = dict(state.new_model().named_parameters())
    given = load_file(done.given / "model.safetensors")
    after = dict(release_of(done.folder)[1].named_parameters())
    same = [key for key in given if key in before and torch.equal(before[key], given[key])]
    assert len(same) == len(before), "every weight is the folder's"
    distances = {
        key: float((after[key] - old).detach().norm() / max(1, old.detach().norm())) for key, old in before.items()
    }
    assert max(distances.values()) > 1e-3
    assert max(distances.values()) < 1, "but not far, as from weights of their own"


@pytest.mark.slow
@every_kind
def test_the_ledger_has_no_vocabulary_and_binds_what_was_given(kind: str, finished: Callable[[str], Finished]) -> None:
    done = finished(kind)
    config = parse_config(done.values)
    with Ledger.open(done.folder / "ledger.sqlite", readonly=True) as ledger:
        assert set(ledger.plans) == {"private", "evaluation"}
        bound = {row.body["name"]: row.body["value"] for row in ledger.rows if row.kind == "bind"}
        assert mechanisms_from_ledger(config, ledger) is not None
    assert set(fingerprints(config)) == {"the given tokenizer", "the model folder"}
    assert fingerprints(config).items() <= bound.items()


@pytest.mark.slow
def test_a_given_bert_gets_the_vocabulary_of_the_private_text(corpora: Path, tmp_path: Path) -> None:
    """It is priced as from scratch, and both the folder and its tokenizer, which says what the rows begin as, are bound."""
    given = FOLDERS["bert"](tmp_path / "given")
    values = small_values(corpora, run=str(tmp_path / "run"), audit=None)
    values["model"] = {"folder": str(given), "public": True, "length": LENGTH, "new_vocabulary": True}
    config = parse_config(values)
    scratch = parse_config({**values, "model": {"layers": 2, "width": 16, "heads": 2, "length": LENGTH}})
    assert make_plan(config).epsilon == make_plan(scratch).epsilon
    assert load_given(config) is not None  # tried with its own tokenizer, before that of the run is paid for
    run = finish(values)
    with Ledger.open(run / "ledger.sqlite", readonly=True) as ledger:
        assert set(ledger.plans) == {"vocabulary", "private", "evaluation"}
    assert set(fingerprints(config)) == {"the model folder", "the model folder's tokenizer"}
    with open_run(config) as state:
        begun, old = state.new_model(), read_given(given)
        rows = rows_of_pieces(old, state.tokenizer, state.special)
        assert begun.config.vocab_size == state.special.size != old.special.size
    table = "bert.embeddings.word_embeddings.weight"
    before = AutoModelForMaskedLM.from_pretrained(given, local_files_only=True).state_dict()[table]
    after = begun.state_dict()[table]
    assert all(torch.allclose(after[number], before[own].mean(dim=0)) for number, own in enumerate(rows))
    check_release(config, ["the patient reports pain"])
    shutil.rmtree(run / "release")
    (run / "private" / "checkpoints" / "private.pt").unlink()
    (given / "tokenizer.json").write_bytes((given / "tokenizer.json").read_bytes() + b"\n")
    with pytest.raises(LedgerError, match="the model folder's tokenizer changed"):
        finish(values)


def test_a_folder_for_a_new_vocabulary_is_checked_before_anything_is_written(tmp_path: Path) -> None:
    """By the plan too; weights that are missing show before the vocabulary is paid for."""
    given = FOLDERS["bert"](tmp_path / "given")
    values = small_values(tmp_path, audit=None)
    long = {**values, "model": {"folder": str(given), "public": True, "length": 41, "new_vocabulary": True}}
    for start in (make_plan, run):
        with pytest.raises(UsageError, match="more than the 40 positions"):
            start(parse_config(long))
    weights = load_file(given / "model.safetensors")
    del weights["bert.encoder.layer.1.output.dense.weight"]
    save_file(weights, given / "model.safetensors", {"format": "pt"})
    with pytest.raises(TacitError, match="no weights for 1 parameter"):
        run(parse_config({**long, "model": {**long["model"], "length": LENGTH}}))
    edit_json(given / "config.json", vocab_size=7)
    with pytest.raises(
        TacitError, match=f"knows 7 token ids and the tokenizer {given} has .*save model and tokenizer together"
    ):
        make_plan(parse_config({**long, "model": {**long["model"], "length": LENGTH}}))
    assert not Path(values["run"]).exists()


def test_a_new_vocabulary_is_another_one(tmp_path: Path) -> None:
    """Without a word about it the run would have the folder's own, and the option no effect."""
    folder = str(FOLDERS["bert"](tmp_path / "given"))
    values = small_values(tmp_path, audit=None)
    del values["vocabulary"]
    values["model"] = {"folder": folder, "length": LENGTH, "new_vocabulary": True}
    for own in ({}, {"vocabulary": {"method": "given"}}, {"vocabulary": {"method": "given", "path": folder}}):
        with pytest.raises(UsageError, match=r"model\.new_vocabulary: say in the section vocabulary how"):
            parse_config({**values, **own})


def test_only_a_folder_gets_a_new_vocabulary(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"model\.new_vocabulary: only a bert that starts from model\.folder"):
        parse_config(small_values(tmp_path, model={"new_vocabulary": True}))


_CARDS = """
import json, os, sys
for folder, code in json.load(sys.stdin):
    os.chdir(folder)
    print("the next card:", flush=True)
    exec(compile(code, folder, "exec"), {"__name__": "__main__"})
"""
"""A new interpreter that knows what the cards' code imports and nothing else; the LSTM's comes last, as it imports tacit."""


@pytest.mark.slow
@pytest.mark.slow
def test_the_cards_code_runs_in_the_release(finished: Callable[[str], Finished]) -> None:
    kinds = sorted(FOLDERS, key="lstm".__eq__)
    cards: list[tuple[str, str]] = []
    for kind in kinds:
        release = finished(kind).folder / "release"
        text = (release / "README.md").read_text()
        (code,) = re.findall(r"^```python\n(.*?)^```$", text, flags=re.DOTALL | re.MULTILINE)
        assert ("tacit" in code) == (kind == "lstm")
        cards.append((str(release), code))
    done = subprocess.run(
        [sys.executable, "-c", _CARDS], input=json.dumps(cards), capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr
    printed = done.stdout.split("the next card:\n")[1:]
    assert [kind for kind, said in zip(kinds, printed, strict=True) if not said.strip()] == []


@pytest.mark.slow
@every_kind
def test_the_report_shows_what_the_models_write_for_public_text(kind: str, finished: Callable[[str], Finished]) -> None:
    release = finished(kind).folder / "release"
    report = read_json(release / "report.json")
    assert report["examples"]
    for example in report["examples"]:
        assert example["released"] or kind == "gpt2"  # which may write bytes that are no text
        assert ("___" in example["prompt"]) == (kind == "bert")
        shown = html.unescape((release / "report.html").read_text())
        assert example["prompt"] in shown
        assert example["released"] in shown


@pytest.mark.slow
@every_kind
def test_the_report_says_the_real_shape_and_what_is_assumed(kind: str, finished: Callable[[str], Finished]) -> None:
    folder = finished(kind).folder
    report = read_json(folder / "release" / "report.json")
    tokenizer, model = release_of(folder)
    assert report["model"] == {
        "kind": kind,
        "layers": 2,
        "width": 12 if kind == "lstm" else 16,
        "heads": None if kind == "lstm" else 2,
        "parameters": sum(parameter.numel() for parameter in model.parameters()),
        "max_length": LENGTH,
        "loading_class": {"bert": "AutoModelForMaskedLM", "gpt2": "AutoModelForCausalLM", "lstm": None}[kind],
        "pipeline_tag": {"bert": "fill-mask", "gpt2": "text-generation", "lstm": None}[kind],
        "loading_module": {"bert": None, "gpt2": None, "lstm": "tacit.models.lstm"}[kind],
        "adapter": None,
        "trained": None,
    }
    assert report["vocabulary"]["size"] == len(tokenizer) == model.config.vocab_size
    assert report["vocabulary"]["released_words"] == 0
    assert "given tokenizer" in report["vocabulary"]["method"]
    assumed = [row["text"] for row in report["guarantee"]["assumptions"] if row["label"] == "assumed"]
    assert any("The given tokenizer is public" in text for text in assumed)
    assert any("The model folder is public" in text for text in assumed)
    assert any("Nobody made the given weights" in text for text in assumed)
    assert not any("private release" in text for text in report["guarantee"]["covered_outputs"])
    assert report["guarantee"]["status"] == "proved"
    assert [attack["name"] for attack in report["attacks"]] == ["exposure"]


@pytest.mark.slow
def test_a_finished_run_is_left_as_it_is_and_reported_without_the_folder(finished: Callable[[str], Finished]) -> None:
    done = finished("gpt2")
    before = (done.folder / "release" / "certificate.json").read_bytes()
    finish(done.values)
    away = done.given.rename(done.given.with_name("away"))
    try:
        report_run(RunFolder(done.folder))
    finally:
        away.rename(done.given)
    assert (done.folder / "release" / "certificate.json").read_bytes() == before


@pytest.mark.slow
@every_kind
def test_a_release_is_trained_on(kind: str, finished: Callable[[str], Finished], corpora: Path, tmp_path: Path) -> None:
    """From our own release: its weights are where the next run begins."""
    first = finished(kind).folder
    privacy = {"unit": "user", "units": 150, "budget": {"epsilon": 20.0, "delta": 1e-4}}  # of both runs
    evaluation = {"held_out": 0.0}
    values = from_folder(
        corpora, first / "release" / "model", run=str(tmp_path / "run"), privacy=privacy, evaluation=evaluation
    )
    for phase in values["phases"]:
        phase["steps"] = 1
    finish(values)
    config = parse_config(values)
    own, before = (
        read_number(read_json(folder / "release" / "certificate.json")["epsilons"][0]["epsilon"])
        for folder in (tmp_path / "run", first)
    )
    assert own > before  # what the first release spent is in it
    assert config.model.kind == kind
    check_release(config, [])
    with open_run(config) as state:
        assert state.special_names == given_tokenizer(config).names
        begun = dict(state.new_model().named_parameters())
    for key, parameter in release_of(first)[1].named_parameters():
        assert torch.equal(begun[key], parameter), key


@pytest.mark.slow
def test_a_run_goes_on_with_the_same_files_only(finished: Callable[[str], Finished], tmp_path: Path) -> None:
    """Stopped in the private phase; then one weight, or a line's end in the tokenizer, is another one."""
    done = finished("gpt2")
    given = done.given
    shutil.copytree(done.folder, tmp_path / "run")
    shutil.rmtree(tmp_path / "run" / "release")
    (tmp_path / "run" / "private" / "checkpoints" / "private.pt").unlink()
    values = {**done.values, "run": str(tmp_path / "run")}
    weights = load_file(given / "model.safetensors")
    weights["transformer.ln_f.bias"][0] += 1e-3
    changed = {
        "tokenizer.json": ("the given tokenizer", (given / "tokenizer.json").read_bytes() + b"\n"),
        "model.safetensors": ("the model folder", save(weights, {"format": "pt"})),
    }
    for name, (what, content) in changed.items():
        kept = (given / name).read_bytes()
        (given / name).write_bytes(content)
        try:
            with pytest.raises(LedgerError, match=f"{what} changed"):
                finish(values)
        finally:
            (given / name).write_bytes(kept)
        assert not (tmp_path / "run" / "release").exists()
    finish(values)
    weights = [load_file(run / "release" / "model" / "model.safetensors") for run in (tmp_path / "run", done.folder)]
    assert all(torch.equal(weights[0][key], weights[1][key]) for key in weights[0])


@pytest.mark.slow
def test_redacted_text_with_a_tokenizer_that_has_no_mask_token(tmp_path: Path) -> None:
    """GPT-2's, and its table gets a row more."""
    write_dialogues(tmp_path, 120)
    given = gpt2_folder(tmp_path / "given")
    values = without_vocabulary(
        screened_values(tmp_path, model={"folder": str(given), "public": True, "length": LENGTH}, rounds=1, audit=None)
    )
    values["phases"][1]["noise_multiplier"] = 2.0
    folder = finish(values)
    with Ledger.open(folder / "ledger.sqlite", readonly=True) as ledger:
        assert set(ledger.plans) == {"public", "private"}
    tokenizer, model = release_of(folder)
    mask = tokenizer.convert_tokens_to_ids("<MASK>")
    assert mask == len(tokenizer) - 1 == model.config.vocab_size - 1 == 300
    with open_run(parse_config(values)) as state:
        stream = rows_of(state, "private")
        assert (np.asarray(stream.ids_ST) == mask).any(), "it is read whole"
        texts = [text for unit in private_units(state)[0][:30] for text in unit.texts]
        bodies = [i for row in range(stream.sequences) for i in stream.ids_ST[row, 1 : stream.lengths_S[row] - 1]]
        start = [i for text in texts for i in tokenizer(text, add_special_tokens=False)["input_ids"]]
        assert [int(i) for i in bodies[: len(start)]] == start
        one, other = (dict(state.new_model().named_parameters()) for _ in range(2))
        assert all(torch.equal(one[key], other[key]) for key in one)
    assert AutoTokenizer.from_pretrained(folder / "release" / "model")("<|endoftext|>")["input_ids"] == [299]


@pytest.mark.slow
def test_a_single_file_is_enough(corpora: Path, tmp_path: Path) -> None:
    byte_bpe().save(str(tmp_path / "some.json"))
    values = with_tokenizer(corpora, tmp_path / "some.json", run=str(tmp_path / "run"))
    for phase in values["phases"]:
        phase["steps"] = 1
    finish(values)
    check_release(parse_config(values), [])
    tokenizer, _ = release_of(tmp_path / "run")
    assert tokenizer.eos_token == "<|endoftext|>"
