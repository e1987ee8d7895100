"""Which scorers are public: a release of ours by its certificate, any other folder by the user's word."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from tacit.errors import RefusedError
from tacit.files import read_json, write_json
from tacit.privacy.certificate import file_digests, make_certificate
from tacit.privacy.events import Event, Gaussian, NonPrivate, PoissonGaussian
from tacit.privacy.ledger import Ledger, LedgerHeader
from tacit.scoring.public import USERS_WORD, require_public_scorer, scorer_folder

from ..folders import gpt2_folder

HEADER = LedgerHeader("record", "add-or-remove", 1000, float("inf"), 1e-5, "config", "key")


def released(root: Path, *events: Event) -> Path:
    """A run with a release whose ledger holds these events."""
    gpt2_folder(root / "release" / "model")
    with Ledger.create(root / "ledger.sqlite", HEADER) as ledger:
        for number, event in enumerate(events):
            ledger.plan(f"stage-{number}", event, 1)
            ledger.charge(f"stage-{number}")
        certificate = make_certificate(ledger, file_digests(root / "release"), "none")
    write_json(root / "release" / "certificate.json", certificate)
    return root


def refused(folder: Path) -> str:
    with pytest.raises(RefusedError) as caught:
        require_public_scorer(scorer_folder(folder))
    assert caught.value.reason == "scorer-not-public"
    assert caught.value.exit_code == 2
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_a_plain_folder_is_public_by_the_users_word(tmp_path: Path) -> None:
    folder = gpt2_folder(tmp_path / "gpt2")
    assert scorer_folder(folder) == folder
    assert require_public_scorer(folder) == USERS_WORD


def test_a_release_of_public_text_is_public_by_its_certificate(tmp_path: Path) -> None:
    root = released(tmp_path / "run")
    for place in (root, root / "release", root / "release" / "model"):
        assert scorer_folder(place) == root / "release" / "model"
        assert "certificate" in require_public_scorer(scorer_folder(place))
    shutil.copytree(root / "release", tmp_path / "copy")
    assert "certificate" in require_public_scorer(scorer_folder(tmp_path / "copy"))


@pytest.mark.parametrize("event", [PoissonGaussian(0.1, 1.0), Gaussian(5.0), NonPrivate("heuristic:non-private")])
def test_a_release_that_read_private_text_is_refused(tmp_path: Path, event: Event) -> None:
    root = released(tmp_path / "run", event)
    for place in (root, root / "release", root / "release" / "model"):
        refused(place)


def add_confidentiality(release: Path) -> None:
    path = release / "certificate.json"
    write_json(path, {**read_json(path), "confidentiality": {}})


def change_weights(release: Path) -> None:
    with (release / "model" / "model.safetensors").open("ab") as file:
        file.write(b"\0")


def add_file(release: Path) -> None:
    (release / "model" / "tokenizer_extra.json").write_text("{}")


def damage(release: Path) -> None:
    (release / "certificate.json").write_text("{")


def no_mapping(release: Path) -> None:
    (release / "certificate.json").write_text("[]")


def take_away(release: Path) -> None:
    (release / "certificate.json").unlink()


@pytest.mark.parametrize("spoil", [add_confidentiality, change_weights, add_file, damage, no_mapping, take_away])
def test_a_certificate_that_does_not_say_so(tmp_path: Path, spoil: Callable[[Path], None]) -> None:
    root = released(tmp_path / "run")
    spoil(root / "release")
    refused(root / "release" / "model")


def test_a_folder_inside_a_run_without_certificate(tmp_path: Path) -> None:
    root = released(tmp_path / "run")
    folder = gpt2_folder(root / "private" / "phase")
    assert "no certificate says what was spent on it" in refused(folder)
    link = tmp_path / "link"
    link.symlink_to(folder)
    refused(link)
