"""A unit of the fine-tuning and one of its pre-training had one name, and were two things (TACIT-9).

"Guaranteed for every document of the fine-tuning and the pre-training together: epsilon 7.995" was said where each sentence of a file
without -DOCSTART- lines was called a document, and composed with whole notes. A *record* was a row of a file in the pre-training and
a whole annotated document in the fine-tuning.
"""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from tacit.entities.finetune import FinetuneResult, finetune
from tacit.errors import DataError, UsageError
from tacit.files import read_json

from ..entities.annotated import DP, LABELS, configured, release, write_notes
from ..folders import bert_folder

NOISE, PROBABILITY = 1.5, 0.1  # of the steps below


def delta_of_one_step(epsilon: float, units: int) -> float:
    """A closed form of what holds of so many units whose gradients point one way: a mixture of Gaussians against one."""
    z = np.linspace(-12, 12 + units / NOISE, 200_001)
    drawn = stats.binom.pmf(np.arange(units + 1), units, PROBABILITY)
    with_them = sum(p * stats.norm.pdf(z, j / NOISE) for j, p in enumerate(drawn))
    return float(np.maximum(0, with_them - math.exp(epsilon) * stats.norm.pdf(z)).sum() * (z[1] - z[0]))


def test_a_note_of_17_sentences_is_not_one_sentence() -> None:
    assert delta_of_one_step(7.995, 1) < 1e-4  # what was accounted for
    assert delta_of_one_step(7.995, 17) > 1e-3  # one step of what was run


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A BERT without a certificate."""
    return bert_folder(tmp_path_factory.mktemp("model") / "bert")


def test_a_file_that_tells_no_document_apart_has_no_documents_as_units(tmp_path: Path, model: Path) -> None:
    write_notes(tmp_path / "notes")
    text = "\n\n".join(path.read_text().strip() for path in sorted((tmp_path / "notes").iterdir())) + "\n"
    (tmp_path / "all.bio").write_text(text)
    dp = {**DP, "noise_multiplier": 1.5}
    start = {"folder": str(model), "public": True}
    one = configured(tmp_path, model, model=start, documents={"path": str(tmp_path / "all.bio")}, dp=dp, labels=LABELS)
    with pytest.raises(DataError, match="does not say where a document ends"):
        finetune(one)
    assert not (tmp_path / "run" / "ledger.sqlite").exists()
    (tmp_path / "all.bio").write_text("-DOCSTART-\tO\n\n" + text)
    assert math.isfinite(finetune(one).epsilon)


def test_a_record_is_no_unit_of_a_fine_tuning(tmp_path: Path, model: Path) -> None:
    """It is a row of a file in a run, and was a whole document here."""
    with pytest.raises(UsageError, match="'document' or 'sentence'"):
        configured(tmp_path, model, dp={**DP, "unit": "record"}, labels=LABELS)


def test_that_a_document_is_one_in_both_texts_is_assumed_in_print(tmp_path: Path) -> None:
    def assumed(result: FinetuneResult) -> list[str]:
        return read_json(result.folder / "release" / "certificate.json")["fine_tuning"]["assumed"]

    write_notes(tmp_path / "notes")
    start = release(tmp_path / "pre")
    dp = {**DP, "noise_multiplier": NOISE, "budget": {"epsilon": 20.0, "delta": 1e-4}}
    together = finetune(configured(tmp_path, start, dp=dp, labels=LABELS))
    assert any("is one whole document of the pre-training, or none" in text for text in assumed(together))
    apart = finetune(configured(tmp_path, start, run=str(tmp_path / "apart"), dp=dp, labels=LABELS, same_people=False))
    assert not any("of the pre-training" in text for text in assumed(apart))
