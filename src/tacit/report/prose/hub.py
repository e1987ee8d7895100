"""The model card's own parts: what a model hub reads, and text that Markdown shows as it is."""

from __future__ import annotations

import re

import yaml
from markupsafe import Markup

from tacit.report.prose.guarantee import verdict
from tacit.report.schema import ModelFacts, ReportData

__all__ = ["front_matter", "markdown", "usage"]


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


_FILL_MASK = """\
from transformers import AutoModelForMaskedLM, AutoTokenizer, pipeline

tokenizer = AutoTokenizer.from_pretrained("model")
model = AutoModelForMaskedLM.from_pretrained("model")
fill = pipeline("fill-mask", model=model, tokenizer=tokenizer)
for found in fill(f"the {tokenizer.mask_token} is here"):
    print(found["token_str"], found["score"])"""

_GENERATION = """\
from transformers import AutoModelForCausalLM, AutoTokenizer, pipeline

tokenizer = AutoTokenizer.from_pretrained("model")
model = AutoModelForCausalLM.from_pretrained("model")
write = pipeline("text-generation", model=model, tokenizer=tokenizer)
print(write("the", max_new_tokens=20)[0]["generated_text"])"""

_OWN = """\
import torch
import {module}  # a network of tacit's own; this tells transformers how to load it
from transformers import AutoModelForCausalLM, AutoTokenizer

tokenizer = AutoTokenizer.from_pretrained("model")
model = AutoModelForCausalLM.from_pretrained("model").eval()
ids = torch.tensor([[model.config.bos_token_id, *tokenizer("the", add_special_tokens=False).input_ids]])
for _ in range(20):
    ids = torch.cat([ids, model(ids).logits[:, -1:].argmax(-1)], dim=1)
print(tokenizer.decode(ids[0], skip_special_tokens=True))"""


_ADAPTER = """\
from peft import PeftModel
from transformers import {loading}, AutoTokenizer

base = "folder of the model that the adapter stands beside"
tokenizer = AutoTokenizer.from_pretrained("model")
model = PeftModel.from_pretrained({loading}.from_pretrained(base), "model/adapter")"""


def usage(model: ModelFacts) -> str:
    """Python that uses the released model, run in the release's folder."""
    if model.adapter is not None and not model.adapter.merged:
        return _ADAPTER.format(loading=model.loading_class)
    if model.loading_module is not None:
        return _OWN.format(module=model.loading_module)
    return _FILL_MASK if model.pipeline_tag == "fill-mask" else _GENERATION


def markdown(value: object) -> Markup:
    """Text that Markdown shows as it is: no HTML, links, images, emphasis, lists or table cells come from it."""
    text = re.sub(r"([\\`*_\[\]|~#$!])", r"\\\1", " ".join(str(value).split()))
    text = re.sub(r"^(\d*)([-+.)])(?= |$)", r"\1\\\2", text)
    return Markup(text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;"))
