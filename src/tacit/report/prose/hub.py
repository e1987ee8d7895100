"""The model card's own parts: what a model hub reads, and text that Markdown shows as it is."""

from __future__ import annotations

import re

import yaml
from markupsafe import Markup

from tacit.report.prose.guarantee import verdict
from tacit.report.schema import ReportData

__all__ = ["front_matter", "markdown"]


def front_matter(data: ReportData) -> str:
    """The YAML that the model hub reads. The tag "differential-privacy" is given to proved runs only."""
    tone = verdict(data.guarantee, data.confidentiality, data.missed_shares).tone
    privacy = {
        "proved": "differential-privacy",
        "conditional": "confidentiality-under-assumptions",
        "none": "no-privacy-guarantee",
    }[tone]
    facts: dict[str, object] = {"license": data.license, "tags": ["tacit", privacy]}
    if data.model.pipeline_tag is not None:
        facts |= {"library_name": "transformers", "pipeline_tag": data.model.pipeline_tag}
    return yaml.safe_dump(facts, sort_keys=False, allow_unicode=True)


def markdown(value: object) -> Markup:
    """Text that Markdown shows as it is: no HTML, links, images, emphasis, lists or table cells come from it."""
    text = re.sub(r"([\\`*_\[\]|~#$!])", r"\\\1", " ".join(str(value).split()))
    text = re.sub(r"^(\d*)([-+.)])(?= |$)", r"\1\\\2", text)
    return Markup(text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;"))
