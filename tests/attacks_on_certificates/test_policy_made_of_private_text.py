"""A policy's model was looked at by nobody.

The account of screened training says that masking one secret changes one record of the training, since the policies read one record
at a time. A tagger that was fine-tuned on the private text itself read all of them. Such a run was accepted, its `start` named
nothing, and its certificate said "at most 1 record", at epsilon 7.994; masking one secret in one annotated record changed how all
others were redacted, and ten such records cost 75.7.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from peft import LoraConfig, get_peft_model
from transformers import AutoModelForTokenClassification

from tacit.config import parse_config
from tacit.config.finetune import load_finetune
from tacit.entities.finetune import finetune
from tacit.errors import RefusedError, UsageError
from tacit.planning.origins import provenance_of
from tacit.privacy.accounting.replacement import Screening, replacement_epsilon, stability
from tacit.privacy.events import PoissonGaussian, Spend
from tacit.privacy.provenance import PUBLIC
from tacit.screening.policy import load_policy

from ..dialogues import dialogue_values
from ..entities.annotated import finetune_values
from ..folders import bert_folder
from ..small import write_config

pytestmark = pytest.mark.slow

LINES = [f"the fever of number {number} again" for number in range(40)]


def tagger(folder: Path, start: Path, secret: str, tag: str) -> Path:
    """A model that was fine-tuned, without DP, on twelve notes of which the first one has the secret; its released folder."""
    notes = folder / "notes"
    notes.mkdir(parents=True)
    for number in range(12):
        rows = [("the", "O"), ("patient", "O"), ("pain", "O"), ("again", "O")]
        if number == 0:
            rows = [("the", "O"), *[(secret, tag)] * 6, ("pain", "O")]
        (notes / f"n{number:02d}.bio").write_text("".join(f"{token}\t{own}\n" for token, own in rows))
    training = {
        "steps": 60, "batch_size": 8, "length": 24, "overlap": 4, "dropout": 0.0, "learning_rate": 1e-2,
    }  # fmt: skip
    sections: dict[str, Any] = {"model": {"folder": str(start), "public": True}, "labels": ["name"]}
    values = finetune_values(folder, start, training=training, **sections)
    begin_finetuning = load_finetune(write_config(folder / "tuned.yaml", values))
    finetune(begin_finetuning)
    return folder / "tuned" / "release" / "model"


def policy_of(folder: Path, model: Path, **options: Any) -> Path:
    detector = {"kind": "huggingface", "folder": str(model), "least_tag_score": 0.3, **options}
    path = folder / "policy.yaml"
    path.write_text(yaml.safe_dump({"name": "mine", "least_score": 0.3, "detectors": [detector]}))
    return path


def screened(folder: Path, policy: Path, **sections: Any) -> Any:
    (folder / "dialogues.jsonl").write_text(
        "".join(json.dumps({"id": f"d{number}", "text": line}) + "\n" for number, line in enumerate(LINES))
    )
    phases = [
        {"name": "private", "plan": "dp", "stream": "private", "steps": 3, "expected_batch": 20, "clip_norm": 0.5,
         "learning_rate": 1e-2},
    ]  # fmt: skip
    screening = {"data_point": "line", "balanced": str(policy), "gamma": 0.01, "delta2": 0.00005}
    return parse_config(
        dialogue_values(folder, 400, title="t", screening=screening, phases=phases, rounds=1, **sections)
    )


@pytest.fixture(scope="module")
def taggers(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Of the corpus, and of the one in which one secret of one record is masked."""
    folder = tmp_path_factory.mktemp("taggers")
    start = bert_folder(folder / "bert")
    return tagger(folder / "one", start, "fever", "B-name"), tagger(folder / "masked", start, "[MASK]", "O")


def test_one_secret_changes_many_records_and_the_run_is_refused(taggers: tuple[Path, Path], tmp_path: Path) -> None:
    marked = []
    for model in taggers:
        spans = load_policy(policy_of(tmp_path, model)).spans_of(LINES)
        marked.append([[(span.start, span.end) for span in own] for own in spans])
    changed = sum(one != other for one, other in zip(*marked, strict=True))
    stated = stability(Screening(order="redact-first", policy="context")).missed
    assert stated == 1
    assert changed > 10 * stated  # what the attack shows
    spends = [Spend(PoissonGaussian(20 / 400, 1.0), 3)]
    assert replacement_epsilon(spends, 1e-4, 10) > 5 * replacement_epsilon(spends, 1e-4, stated)
    for options in ({}, {"public": True}):  # the certificate beside it is believed, and not the user
        with pytest.raises(RefusedError) as refused:
            provenance_of(screened(tmp_path, policy_of(tmp_path, taggers[0], **options)))
        assert refused.value.reason == "start-with-screening"


def test_a_copy_without_its_certificate_is_refused_too(taggers: tuple[Path, Path], tmp_path: Path) -> None:
    shutil.copytree(taggers[0], tmp_path / "copy")
    with pytest.raises(RefusedError) as refused:
        provenance_of(screened(tmp_path, policy_of(tmp_path, tmp_path / "copy", public=True)))
    assert refused.value.reason.startswith("start-")


def test_an_adapter_over_it_is_refused_too(taggers: tuple[Path, Path], tmp_path: Path) -> None:
    """34th attack, by reading: its folder was looked at, and the model that it names was loaded from elsewhere."""
    folder = tmp_path / "adapter"
    whole = AutoModelForTokenClassification.from_pretrained(taggers[0])
    options = LoraConfig(task_type="TOKEN_CLS", r=1, target_modules=["query"])
    get_peft_model(whole, options).save_pretrained(folder)
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(taggers[0] / name, folder)
    found = AutoModelForTokenClassification.from_pretrained(folder)  # known wrong: with all weights of the tagger
    table = "bert.embeddings.word_embeddings.weight"
    own = AutoModelForTokenClassification.from_pretrained(taggers[0]).state_dict()[table]
    assert torch.equal(found.state_dict()[table], own)
    with pytest.raises(UsageError, match="holds a peft adapter, whose model lies elsewhere"):
        load_policy(policy_of(tmp_path, folder, public=True))


def test_a_model_that_is_nowhere_is_refused(tmp_path: Path) -> None:
    (tmp_path / "policy.yaml").write_text(
        "name: mine\nleast_score: 0.3\ndetectors: [{kind: spacy, pipeline: no.where}]\n"
    )
    with pytest.raises(UsageError, match=r"detectors\.0\.pipeline: no\.where is no folder and no package"):
        provenance_of(screened(tmp_path, tmp_path / "policy.yaml"))


def test_of_other_people_it_is_a_stated_assumption(taggers: tuple[Path, Path], tmp_path: Path) -> None:
    found = provenance_of(screened(tmp_path, policy_of(tmp_path, taggers[0]), same_people=False))
    assert not found.inherited
    assert [ancestor.head for ancestor in found.ancestors]  # it is in the certificate, with what is assumed


def test_a_model_that_nothing_certifies_is_public_by_the_users_word(tmp_path: Path) -> None:
    model = bert_folder(tmp_path / "ner")
    with pytest.raises(RefusedError, match="public: true beside folder") as refused:
        provenance_of(screened(tmp_path, policy_of(tmp_path, model)))
    assert refused.value.reason == "start-unknown"
    found = provenance_of(screened(tmp_path, policy_of(tmp_path, model, public=True)))
    (given,) = [given for given in found.given if "detector 1" in given.role]
    assert given.origin == PUBLIC
    assert given.digest  # another model under the same name is another start
