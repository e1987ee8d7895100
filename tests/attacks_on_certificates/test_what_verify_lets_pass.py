"""What `tacit verify` let pass on a finished run.

What was wrong: verify recomputed the certificate from the ledger and compared the digests of the model's files, and nothing else.
It answered 0 after the report was rewritten to "epsilon 0.1", after a file with private text was put beside it, after the words on
randomness were replaced, after the model was taken away with the list of files, and after ledger and certificate were rewritten
with a tenth of the steps. Each test does one of these, shows that the old checks (`verify_certificate`) still say yes where they
did, and ends in what says no now.
"""

from __future__ import annotations

import getpass
import hashlib
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tacit.cli.sign import command as sign
from tacit.errors import LedgerError
from tacit.files import read_json, write_json
from tacit.privacy.accounting.accountant import joint_epsilon
from tacit.privacy.certificate import make_certificate
from tacit.privacy.certificate_checks import verify_certificate
from tacit.privacy.ledger import Ledger
from tacit.release.alone import verify_release
from tacit.release.manifest import finish_release
from tacit.release.verification import verify_run
from tacit.release.writing import is_released
from tacit.runs.folder import RunFolder

from ..ledgers import Row, rewrite_rows
from ..small import small_values, tacit, write_config, write_corpora

pytestmark = pytest.mark.slow

FILES = "every file of the release"
BOUND = "manifest is the one in the ledger"


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("verified")
    write_corpora(folder)
    audit = {"canaries": 3, "probability": 0.2, "contexts": 2, "control": False}
    done = tacit("run", write_config(folder / "config.yaml", small_values(folder, audit=audit)))
    assert done.returncode == 0, done.stderr
    return folder / "run"


@pytest.fixture
def run(finished: Path, tmp_path: Path) -> Path:
    """A copy that a test may change."""
    return Path(shutil.copytree(finished, tmp_path / "run", symlinks=True))


def failures(run: Path) -> dict[str, str]:
    """The checks that fail, with their details."""
    return {check.name: check.detail for check in verify_run(RunFolder(run)) if not check.holds}


def old_checks_hold(run: Path) -> bool:
    """The known-wrong version: the certificate against its ledger, and nothing else."""
    stated = read_json(run / "release" / "certificate.json")
    with Ledger.open(run / "ledger.sqlite", readonly=True) as ledger:
        return all(check.holds for check in verify_certificate(ledger, stated, run / "release"))


def write_manifest_again(run: Path) -> None:
    """What someone without the ledger can do: the manifest of the files as they are now."""
    manifest = read_json(run / "release" / "manifest.json")
    for name in manifest["files"]:
        manifest["files"][name] = hashlib.sha256((run / "release" / name).read_bytes()).hexdigest()
    write_json(run / "release" / "manifest.json", manifest)


def certify_again(run: Path, **changes: Any) -> float:
    """What a curator can do who writes the ledger too: certificate, manifest and the ledger's last row. Returns epsilon."""
    stated = read_json(run / "release" / "certificate.json")
    rewrite_rows(run / "ledger.sqlite", lambda rows: [row for row in rows if row[0] != "release"])
    with Ledger.open(run / "ledger.sqlite") as ledger:
        made = make_certificate(ledger, changes.get("files", stated["files"]), stated["randomness"])
        write_json(run / "release" / "certificate.json", {**made, **changes})
        finish_release(ledger, run / "release")
    return float(made["epsilons"][0]["epsilon"])


# nothing was done ----------------------------------------------------------------------------------------------------


def test_the_untouched_run_holds_and_its_report_may_be_made_again(run: Path) -> None:
    head = read_json(run / "release" / "certificate.json")["ledger_head"]
    done = tacit("verify", run)
    assert done.returncode == 0, done.stderr
    assert head in done.stdout
    assert "Nobody signed this release" in done.stdout
    assert tacit("report", run).returncode == 0
    assert failures(run) == {}
    assert read_json(run / "release" / "certificate.json")["ledger_head"] == head
    for page in ("report.html", "README.md"):
        assert head in (run / "release" / page).read_text()


# files of the release ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("page", ["report.html", "README.md", "report.json"])
def test_a_rewritten_page(run: Path, page: str) -> None:
    path = run / "release" / page
    path.write_text("epsilon 0.1\n")
    assert old_checks_hold(run)
    assert failures(run) == {FILES: f"changed: {page}"}
    write_manifest_again(run)
    assert failures(run).keys() == {BOUND}
    done = tacit("verify", run)
    assert (done.returncode, done.stderr.count("\n")) == (4, 1)
    assert BOUND in done.stderr


def _file(release: Path) -> str:
    (release / "notes.txt").write_text("private text")
    return "not in the manifest: notes.txt"


def _hidden_file(release: Path) -> str:
    (release / "model" / ".notes").write_text("private text")
    return "not in the manifest: model/.notes"


def _folder(release: Path) -> str:
    (release / "empty").mkdir()
    return "no release has: empty (an empty folder)"


def _link_to_folder(release: Path) -> str:
    (release / "system").symlink_to("/usr", target_is_directory=True)
    return "no release has: system (a link)"


def _link_to_file(release: Path) -> str:
    (release / "README.md").rename(release.parent / "README.md")
    (release / "README.md").symlink_to(release.parent / "README.md")
    return "no release has: README.md (a link); missing: README.md"


def _pipe(release: Path) -> str:
    os.mkfifo(release / "pipe")
    return "no release has: pipe (not a regular file)"


def _no_page(release: Path) -> str:
    (release / "report.json").unlink()
    return "missing: report.json"


@pytest.mark.parametrize("add", [_file, _folder, _link_to_folder, _link_to_file, _pipe, _no_page])
def test_something_put_into_the_release_or_taken_out(run: Path, add: Callable[[Path], str]) -> None:
    said = add(run / "release")
    assert old_checks_hold(run)
    assert failures(run) == {FILES: said}


def test_a_file_in_the_model_folder(run: Path) -> None:
    """The model's files were covered before."""
    said = _hidden_file(run / "release")
    assert failures(run)[FILES] == said


def test_a_stranger_gets_into_no_manifest(run: Path) -> None:
    """Making the report again does not bless what somebody has put there."""
    (run / "release" / "notes.txt").write_text("private text")
    done = tacit("report", run)
    assert (done.returncode, done.stderr.count("\n")) == (4, 1)
    assert "notes.txt" in done.stderr
    manifest = read_json(run / "release" / "manifest.json")
    manifest["files"]["notes.txt"] = hashlib.sha256(b"private text").hexdigest()
    write_json(run / "release" / "manifest.json", manifest)
    with Ledger.open(run / "ledger.sqlite") as ledger:
        ledger.release(hashlib.sha256((run / "release" / "manifest.json").read_bytes()).hexdigest())
    assert "listed, but no part of a release: notes.txt" in failures(run)[FILES]


def _better_scores(run: Path) -> None:
    path = run / "private" / "evaluation.json"
    values = read_json(path)
    values["public"]["released model"]["perplexity"] = 1.5
    write_json(path, values)


def _no_exposure(run: Path) -> None:
    path = run / "private" / "audit.json"
    values = read_json(path) if path.exists() else {}
    write_json(
        path, {**values, "released model": []} if values.get("released model") else {"released model": [_EXPOSURE]}
    )


_EXPOSURE = {
    "pattern": "d",
    "canaries": 1,
    "mean_rank": 5.0,
    "bits": 1.0,
    "null_bits": 1.0,
    "p_value": 0.5,
    "ceiling_bits": 3.0,
}


def _more_words(run: Path) -> None:
    for name in ("released.json", "chosen.json"):
        path = run / "private" / "vocabulary" / name
        if path.exists():
            write_json(path, {**read_json(path), "another": 99})


def _another_unit(run: Path) -> None:
    path = run / "config.json"
    values = read_json(path)
    values["evaluation"]["held_out"] = 0.3
    write_json(path, values)


def test_an_audit_that_is_done_again_leaves_the_report_of_the_release(run: Path) -> None:
    """On another machine its numbers differ in the last digits; written over those of the release they would be other figures."""
    path = run / "private" / "audit.json"
    before = path.read_bytes()
    elsewhere = read_json(path)
    elsewhere["released model"][0]["bits"] += 1e-12
    write_json(path, elsewhere)
    done = tacit("audit", run)
    assert done.returncode == 0, done.stderr
    assert read_json(path) == elsewhere
    path.write_bytes(before)
    assert tacit("report", run).returncode == 0


@pytest.mark.parametrize("change", [_better_scores, _no_exposure, _more_words, _another_unit])
def test_what_the_report_shows_is_what_the_release_was_made_with(run: Path, change: Callable[[Path], None]) -> None:
    """`tacit report` copied the scores that lay in run/private into the release, with a manifest that holds."""
    before = (run / "release" / "report.json").read_bytes()
    change(run)
    done = tacit("report", run)
    assert (done.returncode, done.stderr.count("\n")) == (4, 1), done.stderr
    assert (run / "release" / "report.json").read_bytes() == before


def _another_model(run: Path) -> None:
    path = run / "release" / "model" / "model.safetensors"
    weights = bytearray(path.read_bytes())
    weights[-1] ^= 1
    path.write_bytes(weights)


def _better_certificate(run: Path) -> None:
    path = run / "release" / "certificate.json"
    values = read_json(path)
    values["epsilons"] = [{**pair, "epsilon": pair["epsilon"] / 10} for pair in values["epsilons"]]
    write_json(path, values | {"mu": 0.2})


def _less_variation(run: Path) -> None:
    path = run / "release" / "certificate.json"
    write_json(path, read_json(path) | {"total_variation": 0.05})


@pytest.mark.parametrize("change", [_another_model, _better_certificate, _less_variation])
def test_no_report_is_built_over_what_does_not_verify(run: Path, change: Callable[[Path], None]) -> None:
    """`tacit report` wrote a manifest, and its row in the ledger, over an altered model; an altered epsilon was a traceback."""
    change(run)
    rows = len(_rows(run))
    before = [(run / "release" / name).read_bytes() for name in ("report.json", "manifest.json")]
    done = tacit("report", run)
    assert (done.returncode, done.stderr.count("\n")) == (4, 1), done.stderr
    assert [(run / "release" / name).read_bytes() for name in ("report.json", "manifest.json")] == before
    assert len(_rows(run)) == rows


def _rows(run: Path) -> list[Any]:
    with Ledger.open(run / "ledger.sqlite", readonly=True) as ledger:
        return list(ledger.rows)


# the certificate -----------------------------------------------------------------------------------------------------


def test_other_words_on_randomness(run: Path) -> None:
    """Replaced alone, and with manifest and ledger written to match."""
    words = "Training noise: from quantum vacuum, certified."
    path = run / "release" / "certificate.json"
    write_json(path, {**read_json(path), "randomness": words})
    assert old_checks_hold(run)
    assert failures(run).keys() == {FILES, "words on randomness"}
    certify_again(run, randomness=words)
    assert old_checks_hold(run)
    assert failures(run).keys() == {"words on randomness"}


def test_other_words_on_what_is_assumed(run: Path) -> None:
    path = run / "release" / "certificate.json"
    values = read_json(path)
    write_json(path, {**values, "domain": "nothing"})
    assert "certificate's statements" in failures(run)
    write_json(path, {name: value for name, value in values.items() if name != "domain"})
    assert "certificate's statements" not in failures(run)  # certificates were made without it; the manifest tells


@pytest.mark.parametrize("written", [b"[]", b'{"mu": NaN}', b"[" * 100_000])
def test_the_commands_say_in_one_line_that_it_is_damaged(run: Path, written: bytes) -> None:
    (run / "release" / "certificate.json").write_bytes(written)
    for command in ("verify", "report", "audit"):
        done = tacit(command, run)
        assert "Traceback" not in done.stderr
        if done.returncode:  # an audit that reads no certificate says nothing of it
            assert (done.returncode, done.stderr.count("\n")) == (4, 1)
        assert done.returncode == 4 or command == "audit"


def test_no_files_and_no_model(run: Path) -> None:
    shutil.rmtree(run / "release" / "model")
    certify_again(run, files={})
    assert failures(run).keys() == {"certificate covers the model", "certificate's statements"}
    rewrite_rows(
        run / "ledger.sqlite", lambda rows: [row for row in rows if row[1].get("name") != "the released model"]
    )
    certify_again(run, files={})
    assert old_checks_hold(run)
    assert failures(run).keys() == {"certificate covers the model"}


@pytest.mark.parametrize("key", ["confidentiality", "fine_tuning", "adaptive"])
def test_a_statement_that_is_not_the_runs(run: Path, key: str) -> None:
    line = {"sentence": "Nothing can be learnt.", "assumption": "None."}
    made = {
        "confidentiality": {"worst_case": line, "bayesian": line},
        "fine_tuning": {"statement": "Guaranteed."},
        "adaptive": {
            "delta": 1e-4,
            "relation": "add-or-remove",
            "epsilon_of_rho": [],
            "bands_from": "unit",
            "worst": 0.1,
        },
    }
    certify_again(run, **{key: made[key]})
    said = {"fine_tuning": "no fine-tuning is stated", "confidentiality": "confidentiality statement"}
    assert failures(run).keys() == {said.get(key, "certificate's statements")}


ADAPTIVE = {"delta": 1e-4, "relation": "add-or-remove", "epsilon_of_rho": [], "bands_from": "unit", "worst": 0.1}


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"adaptive": ADAPTIVE}, "epsilon of rho"),
        (
            {"fine_tuning": {"statement": "Guaranteed.", "with_dp": False}},
            "certificate agrees with itself",
        ),  # would count no ancestor
        ({"units": 10**6}, "certificate agrees with itself"),  # delta 1e-4: publish a hundred of them
    ],
)
def test_a_released_folder_alone_is_checked_for_what_follows_from_its_own_numbers(
    run: Path, changes: dict[str, Any], said: str
) -> None:
    release = run / "release"
    assert all(check.holds for check in verify_release(release))
    write_json(release / "certificate.json", {**read_json(release / "certificate.json"), **changes})
    write_manifest_again(run)
    assert [check.name for check in verify_release(release) if not check.holds] == [said]


@pytest.mark.parametrize(
    ("changes", "agrees"),
    [({}, True), ({"ledger_head": "0" * 64}, False), ({"epsilons": [{"delta": 1e-4, "epsilon": 0.5}]}, False)],
    ids=["its own", "another state of the run", "another number"],
)
def test_a_finished_run_does_not_state_what_another_certificate_says(
    run: Path, changes: dict[str, Any], agrees: bool
) -> None:
    """33rd attack: after a wrong copy from a backup `tacit run` said the guarantee of whatever certificate lay in the release."""
    path = run / "release" / "certificate.json"
    write_json(path, {**read_json(path), **changes})
    with Ledger.open(run / "ledger.sqlite", readonly=True) as ledger:
        if agrees:
            assert is_released(RunFolder(run), ledger)
        else:
            with pytest.raises(LedgerError, match=r"does not certify what .*ledger\.sqlite holds"):
                is_released(RunFolder(run), ledger)
            (run / "release").rename(run / "elsewhere")
            assert not is_released(RunFolder(run), ledger)


# ledger and certificate ----------------------------------------------------------------------------------------------


def a_tenth(rows: list[Row]) -> list[Row]:
    """The private phase with one step for twelve."""

    def fewer(row: Row) -> Row:
        kind, body, first, count = row
        if body.get("stage") != "private":
            return row
        return (kind, {**body, "limit": 1}, first, count) if kind == "plan" else (kind, body, first, 1)

    return [fewer(row) for row in rows]


def less_noise_told(rows: list[Row]) -> list[Row]:
    """The private phase with four times the noise that it had."""

    def other(row: Row) -> Row:
        kind, body, first, count = row
        if kind != "plan" or body["stage"] != "private":
            return row
        return kind, {**body, "event": {**body["event"], "noise_multiplier": 4.0}}, first, count

    return [other(row) for row in rows]


def quarter_sampling(rows: list[Row]) -> list[Row]:
    """The private phase with a quarter of its batch."""

    def other(row: Row) -> Row:
        kind, body, first, count = row
        if kind != "plan" or body["stage"] != "private":
            return row
        event = {**body["event"], "sampling_probability": body["event"]["sampling_probability"] / 4}
        return kind, {**body, "event": event}, first, count

    return [other(row) for row in rows]


def no_evaluation(rows: list[Row]) -> list[Row]:
    return [row for row in rows if row[1].get("stage") != "evaluation"]


@pytest.mark.parametrize("change", [a_tenth, less_noise_told, quarter_sampling, no_evaluation])
def test_ledger_and_certificate_rewritten_alike(run: Path, change: Callable[[list[Row]], list[Row]]) -> None:
    with Ledger.open(run / "ledger.sqlite", readonly=True) as ledger:
        true = joint_epsilon([ledger.spends()[1]], 1e-4)
    rewrite_rows(run / "ledger.sqlite", change)
    certify_again(run)
    with Ledger.open(run / "ledger.sqlite", readonly=True) as ledger:
        told = joint_epsilon([ledger.spends()[1]], 1e-4)
    assert old_checks_hold(run)
    assert failures(run).keys() == {"ledger's stages are the configuration's"}
    assert change is no_evaluation or told < 0.8 * true


def test_a_changed_configuration(run: Path) -> None:
    values = read_json(run / "config.json")
    values["phases"][1]["steps"] = 1
    write_json(run / "config.json", values)
    assert old_checks_hold(run)
    assert failures(run).keys() == {"configuration is the ledger's", "ledger's stages are the configuration's"}


def test_everything_rewritten_is_seen_by_a_signature_alone(run: Path, tmp_path: Path) -> None:
    """Configuration, ledger, certificate and manifest alike: verify cannot know, and says so. Who has the signer's key does."""
    key = write_key(tmp_path)
    assert tacit("sign", run, "--key", key).returncode == 0
    signature = (run / "release" / "manifest.sig").read_bytes()
    for lone in (run, run / "release"):
        assert tacit("verify", lone, "--signer", key.with_suffix(".pub")).returncode == 0
    values = read_json(run / "config.json")
    values["phases"][1]["steps"] = 1
    write_json(run / "config.json", values)
    kept = {name: value for name, value in values.items() if name not in ("run", "title", "compute", "relative_to")}
    digest = hashlib.sha256(json.dumps(kept, sort_keys=True).encode()).hexdigest()
    rewrite_rows(
        run / "ledger.sqlite",
        lambda rows: [("open", {**rows[0][1], "config_digest": digest}, 0, 0), *a_tenth(rows)[1:]],
    )
    certify_again(run)
    done = tacit("verify", run)
    assert done.returncode == 0
    assert "can replace them consistently, and no check notices it" in done.stdout
    assert tacit("verify", run, "--signer", key.with_suffix(".pub")).returncode == 4
    (run / "release" / "manifest.sig").write_bytes(signature)
    for lone in (run, run / "release"):
        done = tacit("verify", lone, "--signer", key.with_suffix(".pub"))
        assert (done.returncode, done.stderr.count("\n")) == (4, 1)
        assert "not of this manifest.json" in done.stdout


def test_a_release_that_hides_behind_a_ledger(run: Path, tmp_path: Path) -> None:
    """The files of a run, and of another release beside its ledger: the run was checked, and the folder's model never looked at."""
    key = write_key(tmp_path)
    assert tacit("sign", run, "--key", key).returncode == 0
    shutil.copytree(run / "release" / "model", run / "model")
    (run / "model" / "model.safetensors").write_bytes(b"another model")
    shutil.copy(run / "release" / "certificate.json", run)
    assert not failures(run)  # what was asked, and all of it
    for command in (("verify", run), ("verify", run, "--signer", key.with_suffix(".pub")), ("sign", run, "--key", key)):
        done = tacit(*command)
        assert (done.returncode, done.stderr.count("\n")) == (4, 1)
        assert "neither a run nor a release" in done.stderr
    (run / "certificate.json").unlink()  # then it is a run, and what was checked is named
    done = tacit("verify", run, "--signer", key.with_suffix(".pub"))
    assert done.returncode == 0
    assert f"Checked: {run / 'release'}. Nothing else" in done.stdout
    beside = tacit(
        "verify", run, "--signer", key.with_suffix(".pub"), "--certificate", run / "release" / "certificate.json"
    )
    assert (beside.returncode, beside.stderr.count("\n")) == (2, 1)


def test_a_release_that_is_changed_while_the_passphrase_is_typed(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The run was verified, then the passphrase asked for, then the manifest read: whatever lay there by then was signed."""
    key, true = write_key(tmp_path, b"secret"), (run / "release" / "manifest.json").read_bytes()
    forged = shutil.copytree(run / "release", tmp_path / "forged")
    values = read_json(forged / "certificate.json")
    write_json(forged / "certificate.json", {**values, "budget": {**values["budget"], "epsilon": 0.1}})
    manifest = read_json(forged / "manifest.json")
    manifest["files"]["certificate.json"] = hashlib.sha256((forged / "certificate.json").read_bytes()).hexdigest()
    write_json(forged / "manifest.json", manifest)

    def swapped(*_: object, **__: object) -> str:
        shutil.rmtree(run / "release")
        shutil.copytree(forged, run / "release")
        return "secret"

    monkeypatch.setattr(getpass, "getpass", swapped)
    monkeypatch.delenv("TACIT_KEY_PASSPHRASE", raising=False)
    with pytest.raises(LedgerError, match="not signed, since it does not verify"):
        sign(run, key)
    assert (run / "release" / "manifest.json").read_bytes() != true
    assert not (run / "release" / "manifest.sig").exists()


def test_what_does_not_verify_is_not_signed(run: Path, tmp_path: Path) -> None:
    (run / "release" / "README.md").write_text("epsilon 0.1")
    done = tacit("sign", run, "--key", write_key(tmp_path))
    assert (done.returncode, done.stderr.count("\n")) == (4, 1)
    assert "not signed, since it does not verify: every file of the release" in done.stderr
    assert not (run / "release" / "manifest.sig").exists()


def write_key(folder: Path, passphrase: bytes | None = None) -> Path:
    """A key pair in OpenSSH's form, from fixed bytes; with a passphrase in that of PEM."""
    from cryptography.hazmat.primitives import serialization as forms
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    key = Ed25519PrivateKey.from_private_bytes(bytes(range(32)))
    path = folder / "key"
    form = forms.PrivateFormat.OpenSSH if passphrase is None else forms.PrivateFormat.PKCS8
    locked = forms.NoEncryption() if passphrase is None else forms.BestAvailableEncryption(passphrase)
    path.write_bytes(key.private_bytes(forms.Encoding.PEM, form, locked))
    public = key.public_key().public_bytes(forms.Encoding.OpenSSH, forms.PublicFormat.OpenSSH)
    path.with_suffix(".pub").write_bytes(public + b" curator\n")
    return path
