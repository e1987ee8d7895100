"""A run that starts from what another one made of the same text, and certifies as if it had started from nothing (TACIT-1).

A is trained with DP on a text. B starts from A's model and trains on the same text: its certificate said the epsilon of B's own
steps. C starts from A's model and trains on public text alone: its certificate said "proved, epsilon 0, spends []", and C was then
taken for a public scorer. Now whatever a run is given brings its spends with it, through any number of runs, each release once.
"""

from __future__ import annotations

import dataclasses
import shutil
from pathlib import Path
from typing import Any

import pytest

from tacit.config import parse_config
from tacit.config.finetune import check_finetune
from tacit.corpus.readers import read_records
from tacit.corpus.source import Source
from tacit.entities.plan import plan_finetune
from tacit.errors import BudgetError, DataError, RefusedError, UsageError
from tacit.files import read_json, write_json
from tacit.pipeline.stages import run
from tacit.planning import make_plan
from tacit.planning.origins import provenance_of
from tacit.privacy.accounting.accountant import epsilon, joint_epsilon
from tacit.privacy.certificate_checks import verify_certificate
from tacit.privacy.events import PoissonGaussian, Spend
from tacit.privacy.ledger import Ledger
from tacit.privacy.strict_json import read_number
from tacit.release.configured import check_run
from tacit.runs.folder import RunFolder
from tacit.scoring.public import require_public_scorer

from ..adaptive_runs import adaptive_values
from ..scoring.test_public import released
from ..small import small_values, tacit, write_config, write_corpora

DELTA = 1e-4
STEP = PoissonGaussian(20 / 150, 1.0)
STEPS = 12
PUBLIC_KEY = {"seed": "for everybody", "allow": ["heuristic:public-key"]}


def values(folder: Path, name: str, **sections: Any) -> dict[str, Any]:
    """A run whose only release is its DP phase, of 12 steps."""
    plain = {"vocabulary": {"method": "public", "size": 400}, "evaluation": {"held_out": 0.0}, "audit": None}
    return small_values(folder, **{"run": str(folder / name), **plain, **sections})


def starting_from(folder: Path, name: str, start: Path, **sections: Any) -> dict[str, Any]:
    found = values(folder, name, **{"model": {"folder": str(start), "length": 24}, **sections})
    return {key: value for key, value in found.items() if key != "vocabulary" or "vocabulary" in sections}


def certificate_of(folder: Path) -> dict[str, Any]:
    return read_json(folder / "release" / "certificate.json")


def certified(folder: Path) -> float:
    return read_number(certificate_of(folder)["epsilons"][0]["epsilon"])


def verified(folder: Path) -> bool:
    with Ledger.open(RunFolder(folder).ledger, readonly=True) as ledger:
        return all(check.holds for check in verify_certificate(ledger, certificate_of(folder), folder / "release"))


@pytest.fixture(scope="module")
def chain(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A, trained with DP; B and C from it, B with DP on the same text, C on public text alone; D from C, with A's tokenizer."""
    folder = tmp_path_factory.mktemp("chain")
    write_corpora(folder, patients=60, records=300)
    run(parse_config(values(folder, "a")))
    public_only = values(folder, "c")["phases"][:1]
    model = folder / "a" / "release" / "model"
    run(parse_config(starting_from(folder, "b", model)))
    run(parse_config(starting_from(folder, "c", model, phases=public_only)))
    given = {"method": "given", "path": str(model / "tokenizer.json")}
    start = folder / "c" / "release" / "model"
    run(parse_config(starting_from(folder, "d", start, vocabulary=given)))
    return folder


@pytest.mark.slow
def test_the_same_text_twice_costs_twice(chain: Path) -> None:
    alone, both = epsilon([Spend(STEP, STEPS)], DELTA), epsilon([Spend(STEP, 2 * STEPS)], DELTA)
    assert certified(chain / "a") == pytest.approx(alone)
    assert certified(chain / "b") == pytest.approx(both)
    assert both > alone + 0.5  # known wrong: what B's certificate said
    assert verified(chain / "b")


def test_public_training_does_not_wash_a_start(chain: Path) -> None:
    found = certificate_of(chain / "c")
    assert found["status"] == "proved"
    assert certified(chain / "c") == pytest.approx(certified(chain / "a"))  # known wrong: 0, and no spends
    assert [spend["count"] for spend in found["spends"]] == [STEPS]
    assert verified(chain / "c")


def test_each_release_counts_once_however_it_is_reached(chain: Path) -> None:
    """D has A's weights through C, and A's tokenizer."""
    assert certified(chain / "d") == pytest.approx(epsilon([Spend(STEP, 2 * STEPS)], DELTA))
    start = certificate_of(chain / "d")["start"]
    heads = [certificate_of(chain / name)["ledger_head"] for name in ("a", "c")]
    assert [ancestor["head"] for ancestor in start["ancestors"]] == heads
    assert {given["role"]: given["origin"] for given in start["given"] if given["given_to"] == "this run"} == {
        "the model folder": heads[1],
        "the given tokenizer": heads[0],
        "public corpus 1": "declared public",
    }
    assert verified(chain / "d")


def test_each_given_thing_alone_brings_what_was_spent_on_it(chain: Path) -> None:
    """A tokenizer and a list of words, of which one in a run's private folder is refused."""
    tokenizer = str(chain / "a" / "release" / "model" / "tokenizer.json")
    public_only = values(chain, "x")["phases"][:1]
    words: dict[str, Any] = {"method": "weighted", "max_words": 16, "size": 500, "public_words": [tokenizer]}
    for vocabulary in ({"method": "given", "path": tokenizer}, words):
        found = provenance_of(parse_config(values(chain, "x", vocabulary=vocabulary, phases=public_only)))
        spent = epsilon(list(found.inherited.values()), DELTA)
        assert spent == pytest.approx(certified(chain / "a"))  # known wrong: nothing
    words["public_words"] = [str(chain / "a" / "private" / "vocabulary" / "tokenizer.json")]
    with pytest.raises(RefusedError) as caught:
        provenance_of(parse_config(values(chain, "x", vocabulary=words)))
    assert caught.value.reason == "start-inside-a-run"


def test_a_fine_tuning_from_public_phases_pays_for_what_is_behind_them(chain: Path) -> None:
    dp = {
        "unit": "user", "units": 150, "budget": {"epsilon": 9.0, "delta": DELTA},
        "expected_batch": 15, "clip_norm": 0.5, "noise_multiplier": 1.5,
    }  # fmt: skip
    documents = {
        "format": "jsonl",
        "id_field": "note_id",
        "user_field": "patient_id",
        "path": str(chain / "notes.jsonl"),
    }
    config = {
        "run": str(chain / "tuned"), "model": {"folder": str(chain / "c" / "release" / "model")}, "documents": documents,
        "training": {"steps": 4, "length": 24, "overlap": 4}, "labels": ["problem"], "dp": dp,
    }  # fmt: skip
    (found,) = plan_finetune(check_finetune(config, "test")).models
    own = Spend(PoissonGaussian(0.1, 1.5), 4)
    assert found.epsilon_alone == pytest.approx(epsilon([own], DELTA))
    assert found.epsilon == pytest.approx(epsilon([Spend(STEP, STEPS), own], DELTA))  # known wrong: as alone


def test_text_that_lies_in_a_release_is_no_public_corpus(chain: Path, tmp_path: Path) -> None:
    """Such as what a released model has written: its certificate is beside it, and is of other files."""
    release = shutil.copytree(chain / "a" / "release", tmp_path / "release")
    text = shutil.copy(chain / "public.jsonl", release / "generated.jsonl")
    with pytest.raises(DataError, match="certifies other files"):
        provenance_of(parse_config(values(chain, "x", public=[{"path": str(text), "id_field": "id"}])))


@pytest.mark.parametrize("given", ["start", "scorer"])
def test_what_has_read_private_text_decides_no_band(given: str, tmp_path: Path) -> None:
    """As the start of the phase that scores, or as the scorer's folder, whatever its user says of it."""
    read = str(released(tmp_path / "a", PoissonGaussian(0.1, 2.0)) / "release" / "model")
    scorer = {"scorer": {"folder": read, "public": True}} if given == "scorer" else {}
    found = adaptive_values(tmp_path, **scorer)
    if given == "start":  # the scorer is the phase "public"
        del found["vocabulary"]
        found["model"] = {"folder": read, "length": 24}
    with pytest.raises(RefusedError) as caught:
        provenance_of(parse_config(found, "here"))
    assert caught.value.reason == "scorer-not-public"


def test_a_certificate_that_forgets_where_it_began_is_found(chain: Path, tmp_path: Path) -> None:
    shutil.copytree(chain / "b", tmp_path / "b")
    path = tmp_path / "b" / "release" / "certificate.json"
    written = read_json(path)
    write_json(path, {**written, "start": {**written["start"], "ancestors": [], "given": []}})
    assert not verified(tmp_path / "b")


def test_what_read_private_text_is_no_public_scorer(chain: Path) -> None:
    for name in ("a", "b", "c", "d"):
        with pytest.raises(RefusedError, match="has read private text") as caught:
            require_public_scorer(chain / name / "release" / "model")
        assert caught.value.reason == "scorer-not-public"
    assert "other people" in require_public_scorer(chain / "c" / "release" / "model", same_people=False)


def check_people(folder: Path) -> bool:
    with Ledger.open(folder / "ledger.sqlite", readonly=True) as ledger:
        checks = check_run(RunFolder(folder), ledger, certificate_of(folder))
    return next(check.holds for check in checks if check.name == "people of the start")


@pytest.mark.slow
def test_other_people_are_a_stated_assumption(chain: Path) -> None:
    """Nothing is inherited then, and the certificate says so; whoever starts from that inherits all of it again."""
    config = parse_config(starting_from(chain, "e", chain / "c" / "release" / "model", same_people=False))
    found = provenance_of(config)
    assert found.inherited == {}
    assert [bool(ancestor.spends) for ancestor in found.ancestors] == [True, False]
    assert make_plan(config).epsilon == pytest.approx(certified(chain / "a"))  # of its own steps alone
    run(config)
    assert certificate_of(chain / "e")["start"]["same_people"] is False
    report = (chain / "e" / "release" / "report.html").read_text()
    assert "same_people: false" in report
    written = read_json(chain / "e" / "config.json")
    assert check_people(chain / "e")
    write_json(chain / "e" / "config.json", {**written, "same_people": True})
    assert not check_people(chain / "e")
    write_json(chain / "e" / "config.json", written)
    again = parse_config(starting_from(chain, "f", chain / "e" / "release" / "model"))
    spent = list(provenance_of(again).inherited.values())
    assert joint_epsilon(spent, DELTA) == pytest.approx(epsilon([Spend(STEP, 2 * STEPS)], DELTA))
    assert make_plan(again).epsilon == pytest.approx(epsilon([Spend(STEP, 3 * STEPS)], DELTA))


def test_the_noise_is_solved_with_what_was_spent(chain: Path) -> None:
    phases = values(chain, "x")["phases"]
    solved = [phases[0], {key: value for key, value in phases[1].items() if key != "noise_multiplier"}]
    privacy = {"unit": "user", "units": 150, "budget": {"epsilon": 6.0, "delta": DELTA}}
    plan = make_plan(
        parse_config(starting_from(chain, "x", chain / "a" / "release" / "model", phases=solved, privacy=privacy))
    )
    assert 5.85 < plan.epsilon <= 6.0
    noise = plan.mechanisms.phases[1].plan.noise_multiplier
    assert epsilon([Spend(STEP, STEPS), Spend(dataclasses.replace(STEP, noise_multiplier=noise), STEPS)], DELTA) <= 6.0
    privacy = {**privacy, "budget": {"epsilon": 1.0, "delta": DELTA}}
    with pytest.raises(BudgetError, match="on the same people already, and the budget is 1"):
        make_plan(parse_config(starting_from(chain, "x", chain / "a" / "release" / "model", privacy=privacy)))


# ways around it ------------------------------------------------------------------------------------------------------


def refused(folder: Path, start: Path, **sections: Any) -> str:
    with pytest.raises(RefusedError) as caught:
        provenance_of(parse_config(starting_from(folder, "x", start, **sections)))
    return caught.value.reason


def test_a_copy_without_its_certificate_is_not_public_even_by_declaration(chain: Path, tmp_path: Path) -> None:
    shutil.copytree(chain / "a" / "release" / "model", tmp_path / "copy")
    for public in (False, True):
        model = {"folder": str(tmp_path / "copy"), "length": 24, "public": public}
        assert refused(chain, tmp_path / "copy", model=model) == "start-without-certificate"


def test_a_copy_of_what_other_people_were_assumed_for_is_not_public_either(chain: Path, tmp_path: Path) -> None:
    """Public phases from A, said to be of other people: this run spends and inherits nothing, and its model has read A's text."""
    public_only = values(chain, "o")["phases"][:1]
    start = chain / "a" / "release" / "model"
    run(parse_config(starting_from(chain, "o", start, phases=public_only, same_people=False)))
    assert certificate_of(chain / "o")["spends"] == []
    shutil.copytree(chain / "o" / "release" / "model", tmp_path / "copy")
    model = {"folder": str(tmp_path / "copy"), "length": 24, "public": True}
    assert refused(chain, tmp_path / "copy", model=model) == "start-without-certificate"


def test_a_folder_of_nobody_knows_what_is_declared_or_refused(chain: Path, tmp_path: Path) -> None:
    shutil.copytree(chain / "a" / "release" / "model", tmp_path / "copy")
    for name in ("config.json", "tokenizer_config.json"):
        path = tmp_path / "copy" / name
        write_json(path, {key: value for key, value in read_json(path).items() if key != "tacit_run"})
    assert refused(chain, tmp_path / "copy") == "start-unknown"
    model = {"folder": str(tmp_path / "copy"), "length": 24, "public": True}
    found = provenance_of(parse_config(starting_from(chain, "x", tmp_path / "copy", model=model)))
    assert {given.origin for given in found.given if given.role != "public corpus 1"} == {"declared public"}
    allowed = parse_config(starting_from(chain, "x", tmp_path / "copy", allow=["heuristic:unknown-start"]))
    assert make_plan(allowed).epsilon == float("inf")


def test_parts_of_a_run_are_no_start(chain: Path, tmp_path: Path) -> None:
    """Its checkpoints, and what its screening lets through, under whatever name they are linked."""
    inside = chain / "a" / "private" / "vocabulary"
    (tmp_path / "link").symlink_to(inside)
    for path in (inside, inside / "tokenizer.json", tmp_path / "link"):
        given = {"method": "given", "path": str(path), "public": True}
        with pytest.raises(RefusedError) as caught:
            provenance_of(parse_config(values(chain, "x", vocabulary=given)))
        assert caught.value.reason == "start-inside-a-run"
    (tmp_path / "linked").mkdir()
    (tmp_path / "linked" / "x.jsonl").symlink_to(inside / "tokenizer.json")
    for place in (tmp_path / "linked", tmp_path / "linked" / "*.jsonl"):  # each file of a folder or pattern
        with pytest.raises(RefusedError, match="lies in the run folder"):
            provenance_of(parse_config(values(chain, "x", public=[{"path": str(place)}])))
    begun = tmp_path / "begun"  # whose ledger is on another machine's disk while it works. 28th attack
    shutil.copytree(inside, begun / "private" / "vocabulary")
    (begun / "ledger.sqlite").symlink_to(tmp_path / "nowhere")
    shutil.copytree(inside, begun / ".release.partial" / "model")  # of a release that was killed
    for place in (begun / "private" / "vocabulary", begun / ".release.partial" / "model"):
        given = {"method": "given", "path": str(place), "public": True}
        with pytest.raises(RefusedError, match="lies in the run folder"):
            provenance_of(parse_config(values(chain, "x", vocabulary=given)))
    public = [{"path": str(chain / "a" / "private" / "screened" / "public.jsonl")}]
    with pytest.raises(RefusedError) as caught:
        provenance_of(parse_config(values(chain, "x", public=public)))
    assert caught.value.reason == "start-inside-a-run"


def test_a_release_among_public_files_is_named_by_itself(chain: Path, tmp_path: Path) -> None:
    """Of a folder the files of sub-folders are read too; those of a run are left out, and those of a copied release refused."""
    public = tmp_path / "public"
    shutil.copytree(chain / "a", public / "2026" / "run")
    (public / "articles.txt").write_text("a public text\n")
    values_ = values(chain, "x", public=[{"path": str(public), "format": "txt"}])
    assert provenance_of(parse_config(values_)).inherited == {}
    assert [record.text for record in read_records(Source(public))] == ["a public text"]
    shutil.copytree(chain / "a" / "release", public / "2026" / "release")
    (public / "2026" / "release" / "model" / "words.txt").write_text("word\n")
    with pytest.raises(RefusedError, match="lies in a release of tacit") as caught:
        provenance_of(parse_config(values_))
    assert caught.value.reason == "start-inside-a-run"


def test_the_private_file_is_not_a_public_one(chain: Path, tmp_path: Path) -> None:
    (tmp_path / "link.jsonl").symlink_to(chain / "notes.jsonl")
    for path in (chain / "notes.jsonl", chain / "a" / ".." / "notes.jsonl", tmp_path / "link.jsonl"):
        public = [{"path": str(chain / "public.jsonl")}, {"path": str(path)}]
        with pytest.raises(UsageError, match=r"public\.1\.path is the private corpus"):
            provenance_of(parse_config(values(chain, "x", public=public)))


def test_a_link_to_itself_is_one_line(chain: Path, tmp_path: Path) -> None:
    loop = tmp_path / "loop.jsonl"
    loop.symlink_to(loop.name)
    private = {**values(chain, "x")["private"], "path": str(loop)}
    for sections in ({"private": private}, {"public": [{"path": str(loop)}]}):
        done = tacit("plan", write_config(tmp_path / "x.yaml", values(chain, "x", **sections)))
        assert "Traceback" not in done.stderr
        done = tacit("run", write_config(tmp_path / "x.yaml", values(chain, "x", **sections)))
        assert (done.returncode, done.stderr.count("\ntacit: ") + done.stderr.startswith("tacit: ")) == (4, 1), (
            done.stderr
        )


def test_a_certificate_is_of_the_files_beside_it(chain: Path, tmp_path: Path) -> None:
    release = shutil.copytree(chain / "a" / "release", tmp_path / "release")
    with (release / "model" / "model.safetensors").open("ab") as file:
        file.write(b"\0")
    with pytest.raises(DataError, match="certifies other files"):
        provenance_of(parse_config(starting_from(chain, "x", release / "model")))


def test_a_certificate_that_did_not_record_the_start_is_refused(chain: Path, tmp_path: Path) -> None:
    release = shutil.copytree(chain / "a" / "release", tmp_path / "release")
    written = read_json(release / "certificate.json")
    first = {name: value for name, value in written.items() if name not in ("start", "tacit_version")}
    write_json(release / "certificate.json", {**first, "version": 1})
    assert refused(chain, release / "model") == "start-unrecorded"


def test_what_does_not_compose_is_refused(chain: Path) -> None:
    start = chain / "a" / "release" / "model"
    budget = {"epsilon": 9.0, "delta": DELTA}
    assert refused(chain, start, privacy={"unit": "document", "units": 150, "budget": budget}) == (
        "pretraining-unit-differs"
    )
    screened = {"unit": "record", "units": 150, "budget": budget, "relation": "replace"}
    sections = {"screening": {"gamma": 0.1, "delta2": 1e-6}, "privacy": screened, "allow": ["heuristic:unknown-start"]}
    assert refused(chain, start, **sections) == "start-with-screening"
    for unit, allowed in (
        ("record", {"allow": ["heuristic:unknown-start"]}),
        ("record", PUBLIC_KEY),
        ("document", PUBLIC_KEY),
    ):
        other = {"unit": unit, "units": 150, "budget": budget}
        public_only = values(chain, "x")["phases"][
            :1
        ]  # all that it spends is A's, in A's unit, and its epsilon is finite
        assert refused(chain, start, privacy=other, phases=public_only, **allowed) == "pretraining-unit-differs"
    replaced = {"unit": "user", "units": 150, "budget": budget, "relation": "replace"}
    assert refused(chain, start, privacy=replaced) == "pretraining-unit-differs"
