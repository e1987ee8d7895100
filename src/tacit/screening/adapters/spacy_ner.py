"""The named entities of a spaCy pipeline that is on this machine.

spaCy gives entities without a score, so every span has the score that the options declare.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from tacit.errors import UsageError
from tacit.files import refuse_pipes
from tacit.screening.adapters.common import TextByText, missing
from tacit.screening.adapters.contents import place_of
from tacit.screening.adapters.elsewhere import named_elsewhere
from tacit.screening.adapters.options import SpacyOptions
from tacit.screening.spans import Span

if TYPE_CHECKING:
    from spacy.language import Language

__all__ = ["SpacyDetector", "local_pipeline"]


class SpacyDetector(TextByText):
    """Entities (``doc.ents``) of a spaCy pipeline.

    Raises:
        UsageError: spaCy or the pipeline is not installed, it finds no entities, or ``labels`` renames one that it does not have.
    """

    name = "spacy"

    def __init__(self, options: SpacyOptions) -> None:
        self._options = options
        self._pipeline = local_pipeline(options.resolved_pipeline, self.name)
        known = _labels(self._pipeline, options.resolved_pipeline)
        if unknown := sorted(options.labels.keys() - known):
            raise UsageError(
                f"detector spacy: labels: the pipeline {options.resolved_pipeline} has no {', '.join(unknown)}; "
                f"it has {', '.join(sorted(known)) or 'no label'}"
            )

    def _spans(self, text: str) -> list[Span]:
        names, score = self._options.labels, self._options.score
        return [
            Span(entity.start_char, entity.end_char, names.get(entity.label_, entity.label_), score, self.name)
            for entity in self._pipeline(text).ents
        ]


def local_pipeline(place: str, kind: str) -> Language:
    """A spaCy pipeline from a folder or an installed package; ``spacy.load`` looks nowhere else.

    Args:
        place: the folder, or the package's name.
        kind: the detector that asks, for the error.

    Raises:
        UsageError: spaCy is not installed, or there is no such pipeline.
    """
    try:
        import spacy
    except ModuleNotFoundError:
        raise missing(kind, "spacy", "spacy") from None
    refuse_pipes(Path(place))
    _refuse_elsewhere(place, kind)
    # As a path, where it is one: by its name spaCy would take a package that is called so.
    model = Path(place) if Path(place).is_dir() else place
    try:
        return without_limit(spacy.load(model))
    except (OSError, ValueError, KeyError, TypeError, ImportError):  # spaCy's own errors have many lines
        pass
    raise UsageError(
        f"detector {kind}: pipeline: {place} is no spaCy pipeline on this machine; name a folder or an installed package "
        "(nothing is downloaded)"
    )


def _refuse_elsewhere(place: str, kind: str) -> None:
    """What a pipeline would load from another place: neither where that comes from nor what it holds is looked at."""
    from thinc.api import Config

    where = f"detector {kind}: pipeline: {place}"
    found = place_of(place)
    if found is not None and found.is_file():
        raise UsageError(f"{where} is a module without a folder of its own; name the folder of the pipeline")
    for path in [] if found is None else found.rglob("config.cfg"):
        try:
            config = Config().from_disk(path)
        except Exception:  # whoever loads it says what is wrong
            continue
        components = config.get("components", {})
        parts = {**components, "nlp": config.get("nlp")}
        for name, own in parts.items():
            taken = own.get("source") if isinstance(own, dict) else None
            taken = named_elsewhere(own, path.parent) if taken is None else str(taken)
            if taken is not None:
                raise UsageError(
                    f"{where}: {name} in {path.name} takes {taken!r}, which is not looked at; load the pipeline, save it as a whole, "
                    "and name no other place in it"
                )


def without_limit(pipeline: Language) -> Language:
    """spaCy refuses long texts for the memory that they need; here one of them would decide whether there is a release."""
    pipeline.max_length = sys.maxsize
    return pipeline


def _labels(pipeline: Language, place: str) -> set[str]:
    """The labels of the components that set entities."""
    setters = [name for name in pipeline.pipe_names if "doc.ents" in pipeline.get_pipe_meta(name).assigns]
    if not setters:
        raise UsageError(f"detector spacy: pipeline: {place} has no component that finds entities (ner, entity_ruler)")
    return {label for name in setters for label in pipeline.pipe_labels.get(name, [])}
