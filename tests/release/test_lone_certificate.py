"""A certificate's file alone: its arithmetic is checked, it is said that no more is, and the schema agrees with what reads it."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tacit.cli.schema import schema_text
from tacit.errors import LedgerError
from tacit.privacy.certificate import make_certificate
from tacit.privacy.certificate_file import check_certificate
from tacit.privacy.events import BandedPoissonGaussian, Event, Gaussian, NonPrivate, PoissonGaussian
from tacit.privacy.ledger import Ledger, LedgerHeader
from tacit.release.alone import UNSEEN_CERTIFICATE, verify_arithmetic

from ..cli.calling import assert_one_line, caller
from ..cli.test_schema_cli import fits

SCHEMA = json.loads(schema_text("certificate"))
DIGEST = "0" * 64


def certificate(folder: Path, *events: Event) -> dict[str, Any]:
    """Of a ledger with these events, as JSON gives it back."""
    header = LedgerHeader("user", "add-or-remove", 1000, float("inf"), 1e-6, DIGEST, DIGEST)
    with Ledger.create(folder / "ledger.sqlite", header) as ledger:
        for number, event in enumerate(events):
            ledger.plan(f"stage {number}", event, 2, "training units")
            ledger.charge(f"stage {number}", 0)
            ledger.charge(f"stage {number}", 1)
        stated = make_certificate(ledger, {"model/weights.safetensors": DIGEST}, "keyed")
    return json.loads(json.dumps(stated, allow_nan=False))


@pytest.fixture
def stated(tmp_path: Path) -> dict[str, Any]:
    return certificate(tmp_path, PoissonGaussian(0.1, 2.0), Gaussian(3.0))


def failed(stated: dict[str, Any], folder: Path) -> set[str]:
    path = folder / "certificate.json"
    path.write_text(json.dumps(stated))
    return {check.name for check in verify_arithmetic(path) if not check.holds}


def smaller_epsilon(stated: dict[str, Any]) -> None:
    stated["epsilons"][0]["epsilon"] *= 0.99


def fewer_steps(stated: dict[str, Any]) -> None:
    stated["spends"][0]["count"] -= 1


def more_noise(stated: dict[str, Any]) -> None:
    stated["spends"][1]["event"]["noise_multiplier"] += 1


def smaller_mu(stated: dict[str, Any]) -> None:
    stated["mu"] *= 0.9


def smaller_variation(stated: dict[str, Any]) -> None:
    stated["total_variation"] *= 0.9


def another_status(stated: dict[str, Any]) -> None:
    stated["status"] = "heuristic"


def too_few_units(stated: dict[str, Any]) -> None:
    stated["units"] = 2_000_000


def test_an_honest_one_holds(stated: dict[str, Any], tmp_path: Path) -> None:
    assert failed(stated, tmp_path) == set()


@pytest.mark.parametrize(
    "change",
    [smaller_epsilon, fewer_steps, more_noise, smaller_mu, smaller_variation, another_status, too_few_units],
)
def test_wrong_arithmetic_is_found(
    change: Callable[[dict[str, Any]], None], stated: dict[str, Any], tmp_path: Path
) -> None:
    change(stated)
    assert failed(stated, tmp_path)


def test_what_is_no_arithmetic_is_not_looked_at(stated: dict[str, Any], tmp_path: Path) -> None:
    stated["files"] = {"model/other.safetensors": "1" * 64}
    stated["randomness"] = "dice"
    assert failed(stated, tmp_path) == set()
    assert "no more" in UNSEEN_CERTIFICATE


def test_the_command_says_what_it_did_not_check(
    stated: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    tacit, path = caller(monkeypatch, capfd), tmp_path / "copy.json"
    path.write_text(json.dumps(stated))
    done = tacit("verify", path)
    assert done.code == 0
    assert done.out.rstrip().endswith(UNSEEN_CERTIFICATE + ".")
    assert all(check["holds"] for check in tacit("verify", path, "--json").json)
    assert_one_line(tacit("verify", path, "--signer", path), 2, "a file alone")
    smaller_epsilon(stated)
    path.write_text(json.dumps(stated))
    assert_one_line(tacit("verify", path), 4, "does not hold", "epsilon at delta 1e-06")
    path.write_text("{}")
    assert_one_line(tacit("verify", path), 4, "certificate")


@pytest.mark.parametrize(
    "events",
    [
        (PoissonGaussian(0.1, 2.0),),
        (NonPrivate("heuristic:x"),),
        (BandedPoissonGaussian(0.1, 2.0, (0.5,), (1.0, 0.5), "unit"),),
    ],
    ids=["proved", "heuristic", "banded"],
)
def test_certificates_fit_the_schema(events: tuple[Event, ...], tmp_path: Path) -> None:
    assert fits(certificate(tmp_path, *events), SCHEMA, SCHEMA)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("version", 3),
        ("version", "2"),
        ("status", "good"),
        ("units", -1),
        ("relation", "swap"),
        ("epsilons", []),
        ("mu", "large"),
        ("total_variation", 2),
        ("ledger_head", "abc"),
        ("files", {"model/x": "abc"}),
        ("spends", [{"stage": "x"}]),
        ("surprise", 1),
        ("unit", None),
    ],
)
def test_what_the_reader_refuses_the_schema_refuses(stated: dict[str, Any], name: str, value: Any) -> None:
    changed = copy.deepcopy(stated)
    changed[name] = value
    with pytest.raises(LedgerError):
        check_certificate(changed, "x")
    assert not fits(changed, SCHEMA, SCHEMA)
    del changed[name]
    if name in SCHEMA["required"]:
        assert not fits(changed, SCHEMA, SCHEMA)


def test_what_is_assumed_of_every_compared_corpus_stands_in_it(stated: dict[str, Any]) -> None:
    assert "every corpus that is compared" in stated["domain"]
    check_certificate({name: value for name, value in stated.items() if name != "domain"}, "here")  # an earlier one


def test_the_command_names_what_concerns_an_earlier_certificate(
    stated: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    call, path = caller(monkeypatch, capfd), tmp_path / "copy.json"
    path.write_text(json.dumps(stated))
    assert "note  TACIT-" not in call("verify", path).out
    of_then = {name: value for name, value in stated.items() if name not in ("start", "tacit_version")}
    path.write_text(json.dumps({**of_then, "version": 1}))
    said = call("verify", path).out
    assert "note  TACIT-2: two releases with one key had the same noise (docs/known-vulnerabilities.md)" in said
