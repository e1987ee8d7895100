"""The configuration: what has no meaning or no guarantee is refused before anything is read, and says which option it is."""

from __future__ import annotations

import datetime
import importlib
import inspect
import pkgutil
import re
from pathlib import Path
from typing import Any, ClassVar

import pytest
import yaml

import tacit.config
from tacit.clipping import LARGEST, LEAST
from tacit.config import ComputeOptions, RunConfig, TurnsOptions, config_differences, load_config, parse_config
from tacit.config.audit import AuditOptions
from tacit.config.base import Options
from tacit.config.compare import load_comparison, names_tasks
from tacit.config.load import read_yaml
from tacit.config.run import CHECKS, check_meaning
from tacit.corpus.turns import Turns
from tacit.errors import RefusedError, UsageError
from tacit.pipeline.records import source_of
from tacit.strict_yaml import parse_yaml

from .small import small_values


def values() -> dict[str, Any]:
    return {
        "run": "runs/test",
        "privacy": {"unit": "user", "units": 1000, "budget": {"epsilon": 2.0, "delta": 1e-6}},
        "private": {"path": "notes.jsonl", "user_field": "patient"},
        "public": [{"path": "public.jsonl"}],
        "phases": [
            {
                "name": "public",
                "plan": "plain",
                "stream": "public",
                "steps": 5,
                "batch_size": 8,
                "learning_rate": 1e-3,
            },
            {
                "name": "private",
                "plan": "dp",
                "stream": "private",
                "steps": 5,
                "expected_batch": 100,
                "clip_norm": 1.0,
                "learning_rate": 1e-3,
            },
        ],
    }


def with_value(place: str, value: Any) -> dict[str, Any]:
    """The values with one changed; ``place`` is a path such as ``phases.1.steps``."""
    changed = values()
    inside: Any = changed
    *path, last = [int(part) if part.isdigit() else part for part in place.split(".")]
    for part in path:
        if isinstance(inside, dict):
            inside.setdefault(part, {})
        inside = inside[part]
    inside[last] = value
    return changed


def message(changed: dict[str, Any]) -> str:
    with pytest.raises(UsageError) as caught:
        parse_config(changed, "run.yaml")
    text = str(caught.value)
    assert caught.value.exit_code == 2
    assert "\n" not in text
    return text


def test_the_values_are_a_configuration() -> None:
    config = parse_config(values())
    assert [phase.name for phase in config.dp_phases] == ["private"]
    assert config.privacy.relation == "add-or-remove"
    assert config.audit is None


# refusals ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("place", "value", "reason"),
    [
        ("privacy.budget.delta", 1e-3, "delta-too-large"),
        ("privacy.budget.delta", 0.5, "delta-too-large"),
        ("privacy.units", 2_000_000, "delta-too-large"),
        ("vocabulary.method", "hoory", "vocabulary-formula"),
    ],
)
def test_what_cannot_be_proved_is_refused_with_its_reason(place: str, value: Any, reason: str) -> None:
    with pytest.raises(RefusedError) as caught:
        parse_config(with_value(place, value))
    assert caught.value.reason == reason
    assert caught.value.exit_code == 2
    assert reason in str(caught.value)


@pytest.mark.parametrize(
    ("place", "value"),
    [
        ("model.width", 10**400),
        ("model.length", 10**400),
        ("compute.threads", 10**12),
        ("private.max_record_bytes", 10**30),
    ],
    ids=["width", "length", "threads", "bytes"],
)
def test_numbers_that_no_machine_holds_are_refused(tmp_path: Path, place: str, value: int) -> None:
    """Each was a traceback, where a library or a product of numbers overflowed."""
    values = small_values(tmp_path)
    section, name = place.split(".")
    values[section] = {**values.get(section, {}), name: value}
    with pytest.raises(UsageError, match=re.escape(place)) as caught:
        parse_config(values)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("norm", [1e-45, 9e-7, 1.1e12, float("inf"), float("nan")])
def test_a_clip_norm_is_one_that_the_engine_takes(norm: float) -> None:
    assert "phases.1.clip_norm" in message(with_value("phases.1.clip_norm", norm))
    assert LEAST == 1e-6
    assert LARGEST == 1e12


def test_a_delta_below_one_over_the_units_is_taken() -> None:
    assert parse_config(with_value("privacy.budget.delta", 9.99e-4)).privacy.budget.delta == 9.99e-4


def test_a_heuristic_runs_only_when_it_is_allowed_by_name() -> None:
    changed = with_value("vocabulary.method", "hoory")
    for allow in ([], ["heuristic:other"], ["hoory"]):
        with pytest.raises(UsageError):
            parse_config({**changed, "allow": allow})
    config = parse_config({**changed, "allow": ["heuristic:hoory"]})
    assert config.uses_heuristic
    assert not parse_config({**values(), "allow": ["heuristic:hoory"]}).uses_heuristic


@pytest.mark.parametrize(
    ("place", "value", "said"),
    [
        ("allow", ["heuristic:all"], "unknown entry 'heuristic:all'; known: heuristic:adp, heuristic:hoory"),
        ("vocabulary", {"method": "histogram", "noise_stddev": 30.0}, "noise_stddev and threshold together"),
        ("vocabulary", {"method": "histogram", "threshold": 200}, "noise_stddev and threshold together"),
        ("vocabulary", {"noise_stddev": 30.0, "threshold": 200}, "or write method: histogram alone"),
        ("model.heads", 3, "not a multiple of model.heads 3"),
        ("phases.1.name", "public", "share a name"),
        ("phases.1.expected_batch", 1001, "exceeds privacy.units 1000"),
        ("private.user_field", None, "private.user_field is not set"),
        ("phases.1.name", "vocabulary", "'vocabulary' is used by the run itself"),
        ("phases.0.name", "evaluation", "'evaluation' is used by the run itself"),
        ("phases.1.name", "control-public", "'control-public' is used by the run itself"),
    ],
)
def test_what_has_no_meaning_is_refused(place: str, value: Any, said: str) -> None:
    assert said in message(with_value(place, value))


@pytest.mark.parametrize(
    ("place", "value"),
    [
        ("privacy.budget.epsilon", 0.0),
        ("privacy.budget.epsilon", -1),
        ("privacy.budget.epsilon", float("nan")),
        ("privacy.budget.epsilon", float("inf")),
        ("privacy.budget.epsilon", "nan"),
        ("privacy.budget.delta", 0),
        ("privacy.budget.delta", 1),
        ("privacy.budget.delta", float("nan")),
        ("privacy.units", 0),
        ("privacy.units", 10.5),
        ("privacy.unit", "paragraph"),
        ("privacy.unit", {"tuple": 0}),
        ("privacy.relation", "swap"),
        ("vocabulary.epsilon_share", 1.0),
        ("vocabulary.delta_share", 0.0),
        ("vocabulary.max_words", 0),
        ("vocabulary.threshold", float("nan")),
        ("vocabulary.noise_stddev", float("inf")),
        ("vocabulary.size", 299),
        ("model.kind", "gpt3"),
        ("model.length", 7),
        ("model.dropout", 1.0),
        ("masking_probability", 1.0),
        ("phases", []),
        ("rounds", 0),
        ("screening.data_point", "word"),
        ("screening.gamma", 1.5),
        ("screening.missed", 1.0),
        ("screening.deduplicate", "near"),
        ("phases.0.plan", "sgd"),
        ("phases.0.stream", "secret"),
        ("phases.1.stream", "public"),
        ("phases.1.clip_norm", 0),
        ("phases.1.clip_norm", float("nan")),
        ("phases.1.noise_multiplier", 0),
        ("phases.1.noise_multiplier", float("inf")),
        ("phases.1.learning_rate", float("nan")),
        ("phases.1.steps", 0),
        ("phases.1.warmup", 1.0),
        ("phases.1.name", "Private"),
        ("phases.1.name", "../private"),
        ("phases.1.name", "private\n"),
        ("evaluation.held_out", 1.0),
        ("evaluation.held_out", -0.1),
        ("audit.patterns", ["HH"]),
        ("audit.patterns", ["HSS"]),
        ("audit.probability", 0),
        ("compute.micro_batch", 0),
        ("private.max_record_bytes", 0),
        ("private.turns.text", -1),
        ("private.turns.text", None),
        ("private.turns.text", True),
        ("private.turns.speaker", -1),
        ("private.turns.speaker", 1.5),
        ("private.turns.names", ["U"]),
        ("private.turns", "turns"),
        ("screening.group", {"by": "town", "most": 3}),
        ("screening.group", {"by": "user", "most": 0}),
    ],
)
def test_a_value_outside_its_range_is_refused_by_the_name_of_its_option(place: str, value: Any) -> None:
    text = message(with_value(place, value))
    assert text.startswith("run.yaml: option '")
    named = text.split("'")[1]
    assert place.startswith(named) or named.startswith(place)


@pytest.mark.parametrize(
    ("place", "near"),
    [
        ("privcy", "privacy"),
        ("privacy.relations", "relation"),
        ("privacy.budget.epsilonn", "epsilon"),
        ("vocabulary.max_word", "max_words"),
        ("model.widht", "width"),
        ("phases.1.noise_multiplyer", "noise_multiplier"),
        ("phases.1.clipnorm", "clip_norm"),
        ("phases.0.batchsize", "batch_size"),
        ("public.0.text_feild", "text_field"),
        ("audit.canarys", "canaries"),
        ("compute.microbatch", "micro_batch"),
        ("evaluation.heldout", "held_out"),
        ("private.turns.speakers", "speaker"),
        ("screening.group.mos", "most"),
    ],
)
def test_an_unknown_option_names_the_nearest(place: str, near: str) -> None:
    text = message(with_value(place, 1))
    assert f"unknown option {place!r}" in text
    assert f"did you mean {near!r}?" in text


def test_a_misspelt_required_option_is_called_unknown_not_missing() -> None:
    changed = values()
    changed["privacy"]["budgets"] = changed["privacy"].pop("budget")
    assert "did you mean 'budget'?" in message(changed)


def test_an_option_like_no_other_lists_the_valid_ones() -> None:
    text = message(with_value("privacy.zzzz", 1))
    assert "valid here: unit, units, relation, budget" in text


@pytest.mark.parametrize("place", ["run", "privacy", "privacy.budget", "privacy.budget.delta", "phases.1.clip_norm"])
def test_a_missing_option_is_named(place: str) -> None:
    changed = values()
    inside: Any = changed
    *path, last = [int(part) if part.isdigit() else part for part in place.split(".")]
    for part in path:
        inside = inside[part]
    del inside[last]
    assert f"option {place!r} is missing" in message(changed)


def test_no_value_is_repeated_in_an_error() -> None:
    """A configuration may hold a path or a name that is nobody's business."""
    for place in ("privacy.unit", "privacy.units", "privacy.budget.delta", "model.kind", "phases", "vocabulary"):
        assert "zq-secret" not in message(with_value(place, "zq-secret"))


@pytest.mark.parametrize("whole", [None, [], "text", 3])
def test_what_is_not_a_mapping_is_refused(whole: Any) -> None:
    with pytest.raises(UsageError, match="a configuration is a mapping"):
        parse_config(whole)


def test_a_configuration_is_frozen() -> None:
    config = parse_config(values())
    with pytest.raises(Exception, match="frozen"):
        config.privacy.units = 5


# files ---------------------------------------------------------------------------------------------------------------


def test_a_file_is_read(tmp_path: Path) -> None:
    path = tmp_path / "run.yaml"
    path.write_text(yaml.safe_dump(values()))
    assert load_config(path) == parse_config(values(), folder=tmp_path)
    assert load_config(path).digest() == parse_config(values()).digest()
    # YAML reads 1e-6, without a point, as text
    path.write_text(yaml.safe_dump(with_value("privacy.budget.delta", "1e-6")))
    assert load_config(path).privacy.budget.delta == 1e-6


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("run: a\nprivacy: {unit: user\npublic: []\n", 3),
        ("run: a\n\tprivacy: 1\n", 2),
        ("run: [1, 2\n", 2),
        ("run: a\nprivacy:\n  budget: {epsilon: 9.0}\n  budget: {epsilon: 90.0}\n", 4),  # the last one would count
        ("privacy: {budget: {epsilon: 9.0, delta: 1e-6, epsilon: 90.0}}\n", 1),
    ],
)
def test_an_error_in_yaml_names_its_line(tmp_path: Path, text: str, line: int) -> None:
    path = tmp_path / "run.yaml"
    path.write_text(text)
    with pytest.raises(UsageError, match=rf"run\.yaml:{line}: not valid YAML"):
        load_config(path)


@pytest.mark.parametrize(
    ("word", "value", "by_pyyaml"),
    [
        ("0150", 150, 104),  # YAML 1.1's octal
        ("1:30", "1:30", 90),  # its base 60
        ("1e-6", 1e-6, "1e-6"),
        ("0o17", 15, "0o17"),
        ("no", "no", False),  # in a policy's list of words
        ("2026-11-24", "2026-11-24", datetime.date(2026, 11, 24)),
        ("true", True, True),
        ("-.5", -0.5, "-.5"),
        ("0x1F", 31, 31),
        ("'12'", "12", "12"),
        ("~", None, None),
    ],
)
def test_a_word_in_yaml_is_what_a_reader_sees(word: str, value: Any, by_pyyaml: Any) -> None:
    """Against PyYAML, which follows YAML 1.1: a budget of 1:30 was one of 90."""
    read, other = parse_yaml(f"epsilon: {word}")["epsilon"], yaml.safe_load(f"epsilon: {word}")["epsilon"]
    assert (read, type(read)) == (value, type(value))
    assert (other, type(other)) == (by_pyyaml, type(by_pyyaml))


def test_merge_keys_are_kept() -> None:
    assert parse_yaml("a: &a {b: 1, c: 2}\nd: {<<: *a, c: 3}")["d"] == {"b": 1, "c": 3}


@pytest.mark.parametrize(
    "option", ["privacy.budget.epsilon", "privacy.units", "vocabulary.size", "model.length", "privacy.unit"]
)
def test_truth_is_no_number(option: str) -> None:
    """``epsilon: true`` was an epsilon of 1."""
    with pytest.raises(UsageError, match=f"option '{option.rsplit('.', 1)[1]}' is a number or a word"):
        parse_config(with_value(option, True))
    with pytest.raises(UsageError, match=r"privacy\.unit"):
        parse_config(with_value("privacy.unit", {"tuple": True}))
    assert parse_config(with_value("vocabulary.lowercase", False)).vocabulary.lowercase is False


def test_other_files_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no such configuration file"):
        load_config(tmp_path / "absent.yaml")
    with pytest.raises(UsageError, match="no such configuration file"):
        load_config(tmp_path)
    path = tmp_path / "run.yaml"
    for content, said in (
        (b"\xff\xfe", "not UTF-8"),
        (b"", "the file is empty"),
        (b"- 1", "a mapping"),
        (b"run: \x00", "not valid YAML"),
    ):
        path.write_bytes(content)
        with pytest.raises(UsageError, match=said):
            load_config(path)


def test_yaml_cannot_make_objects(tmp_path: Path) -> None:
    path = tmp_path / "run.yaml"
    path.write_text("run: !!python/object/apply:os.getcwd []\n")
    with pytest.raises(UsageError, match="not valid YAML"):
        load_config(path)


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("${TACIT_TEST}/notes", "/data/notes"),
        ("${TACIT_TEST:-/other}/notes", "/data/notes"),
        ("${TACIT_ABSENT:-/other}/notes", "/other/notes"),
        ("${TACIT_ABSENT:-}notes", "notes"),
        ("$TACIT_TEST/notes", "$TACIT_TEST/notes"),
    ],
)
def test_a_path_takes_the_environment(monkeypatch: pytest.MonkeyPatch, path: str, expected: str) -> None:
    monkeypatch.setenv("TACIT_TEST", "/data")
    monkeypatch.delenv("TACIT_ABSENT", raising=False)
    assert parse_config(with_value("private.path", path)).private.resolved_path == Path(expected)


def test_a_path_without_its_variable_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TACIT_ABSENT", raising=False)
    config = parse_config(with_value("private.path", "${TACIT_ABSENT}/notes"))
    with pytest.raises(UsageError, match="TACIT_ABSENT"):
        _ = config.private.resolved_path


# evaluation ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("evaluation", "model", "said"),
    [
        ({"words_and_bytes": True}, {"kind": "bert"}, "a masked model predicts gaps"),
        ({"words_and_bytes": True, "held_out": 0.0}, {"kind": "gpt2"}, "no private evaluation to release them in"),
        ({"words_and_bytes": True}, {"kind": "gpt2"}, None),
        ({"held_out": 0.0}, {"kind": "gpt2"}, None),
    ],
)
def test_words_and_bytes_need_a_release_that_can_hold_them(
    evaluation: dict[str, Any], model: dict[str, Any], said: str | None
) -> None:
    changed = {**values(), "evaluation": evaluation, "model": model}
    if said is None:
        assert parse_config(changed).evaluation.words_and_bytes == ("words_and_bytes" in evaluation)
    else:
        assert said in message(changed)


# streams and screening -------------------------------------------------------------------------------------------------


def screened(**options: Any) -> dict[str, Any]:
    """Alternating training on a screened corpus."""
    changed = with_value("phases.0.stream", "screened")
    changed["privacy"] |= {"unit": "record", "relation": "replace"}
    changed["private"].pop("user_field", None)
    return {**changed, "public": [], "screening": options, "vocabulary": {"method": "public"}, "rounds": 2}


def test_a_screened_run_needs_no_public_text_and_has_no_finite_epsilon() -> None:
    config = parse_config(screened())
    assert config.is_unbounded
    assert not config.uses_heuristic
    assert [config.phase_name(phase, 1) for phase in config.phases] == ["public-2", "private-2"]


@pytest.mark.parametrize(
    ("place", "value", "found"),
    [
        ("privacy.relation", "add-or-remove", "refused (screening-needs-replace)"),
        ("privacy.unit", "document", "privacy.unit must be record"),
        ("vocabulary.method", "histogram", "vocabulary.method must be public"),
        ("phases.0.stream", "public", "public: name at least one public corpus"),
        ("phases.0.stream", "private", "refused (private-text-without-noise)"),
        ("phases.0.stream", "redacted", "refused (private-text-without-noise)"),
        ("screening", {"missed": 0.2, "gamma": 0.1}, "screening.gamma is 0.1, but screening.missed"),
        ("screening", None, "phases: stream: screened needs the section `screening`"),
    ],
)
def test_what_a_screened_run_cannot_be(place: str, value: Any, found: str) -> None:
    changed = screened()
    inside: Any = changed
    *path, last = [int(part) if part.isdigit() else part for part in place.split(".")]
    for part in path:
        inside = inside[part]
    inside[last] = value
    assert message(changed).startswith(found)


def test_the_redacted_stream_needs_screening() -> None:
    changed = {**with_value("phases.0.stream", "redacted"), "allow": ["heuristic:non-private"]}
    assert message(changed).startswith("phases: stream: redacted needs the section `screening`")
    changed = {**screened(), "allow": ["heuristic:non-private"]}
    changed["phases"][0]["stream"] = "redacted"
    assert parse_config(changed).uses_heuristic


def test_private_text_without_noise_has_to_be_allowed() -> None:
    changed = {**with_value("phases.0.stream", "private"), "allow": ["heuristic:non-private"]}
    assert parse_config(changed).uses_heuristic


def test_a_causal_model_has_no_masks() -> None:
    changed = with_value("phases.1.maskings", 2)
    assert parse_config(changed).dp_phases[0].maskings == 2
    changed["model"] = {"kind": "gpt2"}
    assert message(changed) == "phases: private: maskings: a gpt2 has no masks; leave it out"


def test_text_without_screening_needs_public_text() -> None:
    assert message({**values(), "public": []}).startswith("public: name at least one public corpus")


def test_a_control_without_dp_has_two_names_and_one_digest() -> None:
    true, named = (parse_config(with_value("audit.control", value)) for value in (True, "without-dp"))
    without_noise = parse_config(with_value("audit.control", "without-noise"))
    assert true.digest() == named.digest() != without_noise.digest()
    assert true.audit is not None
    assert true.audit.control is True
    plain = without_noise.model_dump(mode="json")
    assert {"control_steps", "control_batch", "control_learning_rate"}.isdisjoint(plain["audit"])
    assert parse_config(plain).digest() == without_noise.digest()  # as a run folder keeps it


@pytest.mark.parametrize("option", ["control_steps", "control_batch", "control_learning_rate"])
def test_a_control_without_noise_has_no_training_of_its_own(option: str) -> None:
    found = message({**values(), "audit": {"control": "without-noise", option: 3}})
    assert f"trains as the phases do; leave {option} out, or set control: true" in found


def test_updates_are_watched_for_coins_under_noise_alone() -> None:
    coins = {"coins": {"examples": 20, "pieces": 4}}
    assert (
        parse_config({**values(), "audit": coins}).digest()
        != parse_config({**values(), "audit": {**coins, "white_box": True}}).digest()
    )
    same = parse_config({**values(), "audit": {**coins, "white_box": False}})
    assert same.digest() == parse_config({**values(), "audit": coins}).digest()
    assert message({**values(), "audit": {"white_box": True}}).startswith(
        "audit.white_box looks for the examples of audit.coins"
    )
    plain = {
        "name": "by-heart",
        "plan": "plain",
        "stream": "private",
        "steps": 2,
        "batch_size": 2,
        "learning_rate": 1e-3,
    }
    phases = [*values()["phases"], plain]
    given = {**values(), "phases": phases, "allow": ["heuristic:non-private"], "audit": {**coins, "white_box": True}}
    assert "trains on the private stream without noise" in message(given)


def attacked(**options: Any) -> dict[str, Any]:
    """A causal model, with membership inference."""
    return {**with_value("model.kind", "lstm"), "audit": {"membership": options}}


def test_membership_inference_has_defaults_and_is_off_without_them() -> None:
    assert parse_config(with_value("audit.canaries", 3)).audit.membership is None
    options = parse_config(attacked()).audit.membership
    assert options is not None
    assert (options.pairs, options.group_size, options.least_pairs) == (500, 20, 80)
    assert parse_config(attacked(pairs=80)).digest() != parse_config(attacked()).digest()
    assert parse_config(attacked(shadow_models=0)).digest() == parse_config(attacked()).digest()
    assert parse_config(attacked(shadow_models=2)).digest() != parse_config(attacked()).digest()


@pytest.mark.parametrize(
    ("place", "value", "found"),
    [
        ("model.kind", "bert", "audit.membership attacks causal models"),
        ("evaluation.held_out", 0, "audit.membership takes its non-members from the held-out part"),
        ("audit.membership.pairs", 79, "audit.membership: 79 pairs are fewer than four groups of 20"),
        ("audit.membership.group_size", 1, "run.yaml: option 'audit.membership.group_size'"),
        (
            "audit.membership.shadow_models",
            3,
            "audit.membership.shadow_models is 3: each half of the texts has a model",
        ),
        ("audit.membership.shadow_models", -2, "run.yaml: option 'audit.membership.shadow_models'"),
        (
            "audit.membership.groupsize",
            5,
            "run.yaml: unknown option 'audit.membership.groupsize'; did you mean 'group_size'?",
        ),
    ],
)
def test_what_membership_inference_cannot_be(place: str, value: Any, found: str) -> None:
    changed = attacked()
    inside: Any = changed
    *path, last = place.split(".")
    for part in path:
        inside = inside.setdefault(part, {})
    inside[last] = value
    assert message(changed).startswith(found)


# digest --------------------------------------------------------------------------------------------------------------

OTHER_VALUES: dict[str, Any] = {
    "privacy.unit": "record",
    "privacy.units": 1001,
    "privacy.relation": "replace",
    "privacy.budget.epsilon": 2.5,
    "privacy.budget.delta": 2e-6,
    "private.path": "other.jsonl",
    "private.text_field": "body",
    "private.user_field": "other",
    "private.limit": 10,
    "public.0.path": "other.jsonl",
    "public.0.times": 2,
    "screening": None,
    "marking": None,
    "adaptive": None,
    "rounds": 3,
    "vocabulary.max_words": 64,
    "vocabulary.epsilon_share": 0.2,
    "vocabulary.lowercase": False,
    "model.width": 64,
    "model.dropout": 0.1,
    "masking_probability": 0.2,
    "phases.0.batch_size": 9,
    "phases.1.clip_norm": 0.9,
    "phases.1.clipping": "automatic",
    "phases.1.noise_multiplier": 3.0,
    "phases.1.steps": 6,
    "phases.1.maskings": 2,
    "phases.1.average": 0.9,
    "phases.1.keep": 0.5,
    "phases.1.name": "other",
    "evaluation.held_out": 0.2,
    "audit.canaries": 3,
    "audit.attacks": {"toy": {"guesses": 3}},
    "allow": ["heuristic:hoory"],
    "same_people": False,
    "seed": None,  # it is refused without an entry in allow; below
}


DIGESTS = {
    "recipes/clinical-bert-large.yaml": "aaf32eceb5b4925c6143a1aa7bb93c1ba8f1bd5055b5b8d40de1bc8fc86a6e9e",
    "recipes/clinical-bert.yaml": "bd6b570a7e90ebd2ef1ba9dfb708f486c16ef992e97ca8b46c7023738ff1f879",
    "recipes/crt-customersim.yaml": "f63d6fa164f3c1f0a21df96d9aabd953d512cdda30dfd09d7b33c8ed49af218d",
    "recipes/selective-customersim.yaml": "2678782aa8fd7bc153e74e39c5778c3fe472e0098dbe58b8a1e30d61e47df94f",
    "src/tacit/recipes/demo.yaml": "833f2cafd9a56a603edefa1d1a905c1a2516ec14932df4944e63a80164b83c92",
}
"""As they were when the recipes were written; a run that was begun with one of them goes on only while its digest stays."""


@pytest.mark.parametrize("recipe", DIGESTS)
def test_a_recipe_keeps_its_digest(recipe: str) -> None:
    assert load_config(Path(__file__).parents[1] / recipe).digest() == DIGESTS[recipe]


@pytest.mark.parametrize(
    "path", sorted((Path(__file__).parents[1] / "recipes").glob("*.yaml")), ids=lambda path: path.stem
)
def test_every_recipe_is_a_configuration(path: Path) -> None:
    values = read_yaml(path)
    config = load_comparison(values, str(path)) if names_tasks(values) else load_config(path)
    assert config.run == f"runs/{path.stem}"


class _Before(Options):
    path: str = "a"


class _Unnamed(Options):
    path: str = "a"
    added: int | None = None


class _After(_Unnamed):
    added_later: ClassVar = frozenset({"added"})


def test_an_option_that_came_later_is_no_part_of_the_plain_values_at_its_default() -> None:
    assert _After().model_dump() == _Before().model_dump() != _Unnamed().model_dump()
    assert _After(added=3).model_dump() == {"path": "a", "added": 3}
    assert _After.model_validate(_After(added=3).model_dump()) == _After(added=3)


def test_the_digest_changes_with_everything_that_changes_a_result() -> None:
    digests = {parse_config(values()).digest()}
    others = {place: with_value(place, value) for place, value in OTHER_VALUES.items() if value is not None}
    digests |= {parse_config(other).digest() for other in others.values()}
    digests |= {parse_config(screened()).digest(), parse_config(screened(gamma=0.1)).digest()}
    public_key = {**values(), "allow": ["heuristic:public-key"]}
    digests |= {parse_config({**public_key, "seed": seed}).digest() for seed in ("one", "other")}
    assert len(digests) == len(others) + 5
    tops = {place.split(".")[0] for place in OTHER_VALUES}
    assert tops == set(RunConfig.model_fields) - {"run", "ledger_folder", "title", "compute", "relative_to"}


@pytest.mark.parametrize(
    ("place", "value"),
    [
        ("run", "elsewhere"),
        ("title", "another title"),
        ("compute.micro_batch", 3),
        ("compute.threads", 7),
        ("compute.checkpoint_seconds", 0.0),
        ("compute.workers", 1),
        ("compute.counting_memory_mb", 64),
        ("compute.device", "cuda"),  # what it changes, the noise's source, is bound in the ledger
        ("compute.precision", "bf16"),  # likewise, for each private phase
        ("compute.checkpointing", True),
        ("compute.shard", True),
        ("compute.runner", "spark"),
        ("ledger_folder", "/var/lib/tacit"),
    ],
)
def test_the_digest_ignores_place_title_and_speed(place: str, value: Any) -> None:
    assert parse_config(with_value(place, value)).digest() == parse_config(values()).digest()


def test_every_speed_option_is_covered_above() -> None:
    names = {"micro_batch", "threads", "workers", "checkpoint_seconds", "device", "counting_memory_mb"}
    assert set(ComputeOptions.model_fields) == names | {"precision", "checkpointing", "shard", "runner"}


@pytest.mark.parametrize("place", ["title", "run"])
@pytest.mark.parametrize("value", ["", "My run\n", "a\tb", "\x1b[31m"])
def test_what_stands_on_the_report_is_looked_at_before_anything_is_paid(place: str, value: str) -> None:
    """The report refuses it, and came when all was paid."""
    with pytest.raises(UsageError, match=rf"{place}.* no line breaks or other control characters"):
        parse_config(with_value(place, value))


def test_so_is_what_a_variable_makes_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OUT", "notes\n")
    with pytest.raises(UsageError, match="no line breaks or other control characters"):
        _ = parse_config(with_value("run", "runs/${OUT}")).resolved_run


@pytest.mark.parametrize(
    ("place", "value", "said"),
    [
        ("model.kind", "lstm", "only models of kind bert, gpt2, llama"),
        ("compute.checkpointing", True, "not with an adapter, model.trained, or compute.checkpointing"),
    ],
)
def test_what_is_not_sharded_is_refused(place: str, value: Any, said: str) -> None:
    given = with_value(place, value)
    with pytest.raises(UsageError, match=rf"compute\.shard: {said}"):
        parse_config({**given, "compute": {**given.get("compute", {}), "shard": True}})


def test_an_lstm_computes_no_activations_again() -> None:
    given = {**with_value("model.kind", "lstm"), "compute": {"checkpointing": True}}
    with pytest.raises(UsageError, match=r"compute\.checkpointing: layers of kind lstm cannot be computed again"):
        parse_config(given)
    parse_config({**given, "compute": {"precision": "bf16"}})


def test_defaults_and_the_same_values_written_out_have_one_digest() -> None:
    config = parse_config(values())
    assert parse_config(config.model_dump(mode="json")) == config
    assert parse_config(config.model_dump(mode="json")).digest() == config.digest()


def test_differences_are_named() -> None:
    for place, value, line in (
        ("privacy.budget.epsilon", 3.0, "privacy.budget.epsilon: 2.0 -> 3.0"),
        ("phases.1.steps", 6, "phases.1.steps: 5 -> 6"),
        ("model.width", 64, "model.width: 128 -> 64"),
    ):
        old, new = parse_config(values()), parse_config(with_value(place, value))
        assert config_differences(old.comparable(), new.comparable()) == [line]
    same = parse_config(with_value("run", "elsewhere")).comparable()
    assert config_differences(parse_config(values()).comparable(), same) == []


def test_the_defaults_of_turns_are_the_readers() -> None:
    options = parse_config({**values(), "private": {"path": "a.jsonl", "user_field": "u", "turns": {}}}).private
    assert source_of(options).turns == Turns()
    named = options.model_copy(update={"turns": TurnsOptions(text="utterance", speaker=None, names={"A": "B"})})
    assert source_of(named).turns == Turns("utterance", None, {"A": "B"})


# the control ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("units", "phases", "batch", "steps"),
    [
        (1100, 1, 64, 430),  # the demo: docs/attacks.md
        (1100, 4, 64, 108),  # together as many
        (1100, 1, 128, 215),
        (10_000_000, 1, 64, 4000),  # no more than a laptop does
        (10_000_000, 8, 64, 500),
        (1, 1, 64, 1),
    ],
)
def test_the_control_sees_each_unit_25_times(units: int, phases: int, batch: int, steps: int) -> None:
    assert AuditOptions(control=True, control_batch=batch).enough_control_steps(units, phases) == steps


def test_no_check_of_a_section_is_forgotten() -> None:
    """What takes a whole configuration alone and is called check_... stands in the list, once."""
    found = set()
    for module in pkgutil.walk_packages(tacit.config.__path__, "tacit.config."):
        for name, check in inspect.getmembers(importlib.import_module(module.name), inspect.isfunction):
            if name.startswith("check_") and list(inspect.signature(check).parameters) == ["config"]:
                found.add(check)
    assert found - {check_meaning} == set(CHECKS)
    assert len(CHECKS) == len(set(CHECKS)) > 10


def test_the_first_mistake_in_the_order_of_the_checks_is_reported() -> None:
    """Each mistake here is of a later check than the one before: mended from the front, they show one after another."""
    given = values()
    mistakes: list[tuple[str, dict[str, Any], str]] = [
        ("privacy", {"budget": {"epsilon": 2.0, "delta": 0.5}}, "delta-too-large"),
        ("", {"seed": "a"}, "public-key"),
        ("vocabulary", {"method": "hoory", "threshold": 30.0}, "vocabulary-formula"),
        ("", {"marking": {}}, "no phase has stream: marked"),
        ("", {"public": []}, "name at least one public corpus"),
        ("", {"audit": {"membership": {}}}, "attacks causal models"),
        ("model", {"public": True}, "model.public is about"),
        ("model", {"heads": 3}, "not a multiple of model.heads"),
        ("phases", {"name": "vocabulary"}, "is used by the run itself"),
        ("private", {"user_field": None}, "user_field is not set"),
    ]
    right: list[dict[str, Any]] = []
    for place, wrong, _ in mistakes:
        section = given if not place else given.setdefault(place, {})
        section = section[0] if isinstance(section, list) else section
        right.append({name: section.get(name) for name in wrong})
        section.update(wrong)
    for (place, _, said), mended in zip(mistakes, right, strict=True):
        with pytest.raises(UsageError, match=re.escape(said)):
            parse_config(given)
        section = given if not place else given[place]
        section = section[0] if isinstance(section, list) else section
        for name, value in mended.items():
            section.pop(name) if value is None else section.update({name: value})
    parse_config(given)
