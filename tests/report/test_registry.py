"""The draft for OpenDP's registry has that registry's fields and no others, and says what it does not know."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from tacit.errors import UsageError
from tacit.report.build import build_report
from tacit.report.registry import OPEN, registry_record, registry_text

from ..cli.calling import assert_one_line, caller
from .example import example_report_data

TEXT = str
SHAPE: dict[str, Any] = {
    "url_slug": TEXT,
    "status": {"Draft"},
    "tier": {3},
    "deployment": {
        "basic": {
            "name": TEXT,
            "data_curators": [TEXT],
            "intended_use": TEXT,
            "data_product_type": {"Machine learning model"},
            "data_product_region": TEXT,
            "description": TEXT,
            "publication_date": TEXT,
        },
        "dp_variant": {"variant_name": {"Approximate DP"}, "data_domain": TEXT, "unprotected_quantities": TEXT},
        "privacy_loss": {
            "privacy_unit": TEXT,
            "privacy_unit_details": TEXT,
            "privacy_parameters": {"epsilon": float, "delta": float},
            "privacy_parameters_details": TEXT,
        },
        "deployment_model": {
            "model_name": {"Central"},
            "actors": TEXT,
            "release_type": {"One release"},
            "release_type_details": TEXT,
            "data_source_type": {"Static"},
            "access_type": {"Non-interactive"},
            "access_type_details": TEXT,
        },
        "accounting": {"post_processing": TEXT, "composition": TEXT},
        "implementation": {
            "preprocessing_and_hyperparameter_tuning": TEXT,
            "mechanisms": TEXT,
            "justification": TEXT,
        },
        "administrative": {"sources": TEXT, "notes": TEXT, "registry_authors": [TEXT]},
    },
}
"""Of schemas/deployments-schema.yaml in opendp/deployments-registry-data, whose objects take no other fields: types, and which of the
listed words are taken."""


def wrong(value: Any, shape: Any, place: str = "") -> list[str]:
    """Places where a value is not of the shape."""
    if isinstance(shape, dict):
        if not isinstance(value, dict) or set(value) != set(shape):
            return [place]
        return [found for name in shape for found in wrong(value[name], shape[name], f"{place}/{name}")]
    if isinstance(shape, set):
        return [] if value in shape else [place]
    if isinstance(shape, list):
        return [] if value and all(isinstance(one, shape[0]) for one in value) else [place]
    return [] if isinstance(value, shape) and value != "" else [place]


def test_the_draft_has_the_registrys_shape() -> None:
    data = example_report_data()
    record = yaml.safe_load(registry_text(data))
    assert wrong(record, SHAPE) == []
    assert record == registry_record(data)
    loss = record["deployment"]["privacy_loss"]
    assert loss["privacy_parameters"] == {"epsilon": data.guarantee.certified.epsilon, "delta": 1e-6}
    assert "One user is added or removed." in loss["privacy_unit_details"]
    assert "one record of a user: 6.31" in loss["privacy_parameters_details"]


def test_what_tacit_cannot_know_is_open() -> None:
    basic = registry_record(example_report_data())["deployment"]["basic"]
    assert {name for name, value in basic.items() if value in (OPEN, [OPEN])} == {
        "data_curators",
        "intended_use",
        "data_product_region",
        "publication_date",
    }


def test_the_shape_finds_a_field_too_many_and_a_wrong_word() -> None:
    record = registry_record(example_report_data())
    record["tier"] = 4
    record["deployment"]["accounting"]["more"] = "x"
    assert wrong(record, SHAPE) == ["/tier", "/deployment/accounting"]


def test_the_command_writes_a_new_file_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    tacit, path = caller(monkeypatch, capfd), tmp_path / "draft.yaml"
    assert_one_line(tacit("report", tmp_path, "--registry", path), 2, "no report")
    build_report(example_report_data(), tmp_path / "release")
    done = tacit("report", tmp_path, "--registry", path)
    assert done.code == 0, done.err
    assert path.read_text() == registry_text(example_report_data())
    assert_one_line(tacit("report", tmp_path, "--registry", path), 2, "there already")


def test_a_run_without_a_guarantee_does_not_belong_there() -> None:
    with pytest.raises(UsageError, match="does not belong"):
        registry_record(example_report_data(proved=False))
