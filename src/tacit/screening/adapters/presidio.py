"""Microsoft Presidio's analyzer without a network: its recognisers of forms, and a local spaCy pipeline where one is named.

Left to itself, Presidio downloads a spaCy model, asks the network for the list of top-level domains, skips a pattern that takes
too long with no more than a log line, and writes words of the text to its debug log. Here the pipeline is empty unless one is
named, the list is the one that the package tldextract carries, a text whose analysis lasted as long as the limit counts as one
that cannot be read, and what Presidio logs below a warning is dropped.
"""

from __future__ import annotations

import importlib.util
import logging
import time
from typing import TYPE_CHECKING

from tacit.errors import UsageError
from tacit.screening.adapters.common import TextByText, UnreadableError, missing
from tacit.screening.adapters.options import PresidioOptions
from tacit.screening.adapters.spacy_ner import local_pipeline, without_limit
from tacit.screening.spans import Span

if TYPE_CHECKING:
    from presidio_analyzer import AnalyzerEngine, RecognizerRegistry
    from presidio_analyzer.nlp_engine import NlpArtifacts, SpacyNlpEngine
    from spacy.language import Language

__all__ = ["PresidioDetector"]

_LANGUAGE = "en"


class PresidioDetector(TextByText):
    """What Presidio's analyzer finds in English text, with its own entity names and scores.

    Raises:
        UsageError: Presidio or the pipeline is not installed, or it has no such entity.
    """

    name = "presidio"

    def __init__(self, options: PresidioOptions) -> None:
        if importlib.util.find_spec("presidio_analyzer") is None:
            raise missing(self.name, "presidio-analyzer", "presidio")
        logging.getLogger("presidio-analyzer").addFilter(_has_no_text)
        self._pipeline = _pipeline(options.resolved_pipeline)
        self._engine = _engine(self._pipeline)
        self._analyzer = _analyzer(self._engine, with_names=options.pipeline is not None)
        known = self._analyzer.get_supported_entities(_LANGUAGE)
        if unknown := sorted(set(options.entities or ()) - set(known)):
            raise UsageError(
                f"detector presidio: entities: there is no {', '.join(unknown)}; there are {', '.join(sorted(known))}"
            )
        self._entities = None if options.entities is None else list(options.entities)

    def _spans(self, text: str) -> list[Span]:
        """All that Presidio finds; it may take the time after which Presidio skips patterns for the whole text, and no more."""
        from presidio_analyzer import pattern_recognizer

        artifacts = self._engine.process_text(text, _LANGUAGE)
        begin = time.process_time()  # the clock of the limit
        found = self._analyzer.analyze(text, _LANGUAGE, self._entities, nlp_artifacts=_with_words(artifacts))
        if time.process_time() - begin >= pattern_recognizer.REGEX_TIMEOUT_SECONDS:
            raise UnreadableError
        return sorted(Span(item.start, item.end, item.entity_type, item.score, self.name) for item in found)


def _has_no_text(record: logging.LogRecord) -> bool:
    """Whether a log record may pass: none may, since Presidio's hold words of the text, one of its errors a whole match."""
    del record
    return False


def _pipeline(place: str | None) -> Language:
    """The named pipeline, or one that only splits words, which context words such as "phone" are compared with."""
    if place is not None:
        return local_pipeline(place, PresidioDetector.name)
    import spacy

    return without_limit(spacy.blank(_LANGUAGE))


def _engine(pipeline: Language) -> SpacyNlpEngine:
    """Presidio's engine around a pipeline that is loaded already; an entity that Presidio has no word for keeps its own."""
    from presidio_analyzer.nlp_engine import NerModelConfiguration, SpacyNlpEngine

    class LoadedEngine(SpacyNlpEngine):
        def __init__(self) -> None:
            labels = {label for own in pipeline.pipe_labels.values() for label in own}
            known = NerModelConfiguration().model_to_presidio_entity_mapping or {}
            mapping = {label: label for label in labels} | known
            super().__init__(ner_model_configuration=NerModelConfiguration(model_to_presidio_entity_mapping=mapping))
            self.nlp = {_LANGUAGE: pipeline}

    return LoadedEngine()


def _analyzer(engine: SpacyNlpEngine, with_names: bool) -> AnalyzerEngine:
    from presidio_analyzer import AnalyzerEngine

    return AnalyzerEngine(registry=_registry(engine, with_names), nlp_engine=engine, supported_languages=[_LANGUAGE])


def _registry(engine: SpacyNlpEngine, with_names: bool) -> RecognizerRegistry:
    """Presidio's own recognisers of forms, and of names if wanted. Those that ask a model or a service are none of these."""
    from presidio_analyzer import PatternRecognizer, RecognizerRegistry
    from presidio_analyzer.predefined_recognizers import EmailRecognizer, PhoneRecognizer, SpacyRecognizer
    from tldextract import TLDExtract

    extract = TLDExtract(cache_dir=None, suffix_list_urls=())

    class OfflineEmailRecognizer(EmailRecognizer):
        def validate_result(self, pattern_text: str) -> bool | None:  # pyright: ignore[reportIncompatibleMethodOverride]
            """True below a known top-level domain; else no opinion: an address inside a company is an address too."""
            return True if extract(pattern_text).fqdn else None

    registry = RecognizerRegistry(supported_languages=[_LANGUAGE])
    registry.load_predefined_recognizers(languages=[_LANGUAGE], nlp_engine=engine)
    wanted = (PatternRecognizer, PhoneRecognizer, *([SpacyRecognizer] if with_names else []))
    registry.recognizers = [
        OfflineEmailRecognizer() if isinstance(item, EmailRecognizer) else item
        for item in registry.recognizers
        if isinstance(item, wanted)
    ]
    return registry


def _with_words(artifacts: NlpArtifacts) -> NlpArtifacts:
    """What the recognisers read of a text; where the pipeline knows no lemma of a word, with the word itself."""
    from presidio_analyzer.nlp_engine import NlpArtifacts

    return NlpArtifacts(
        entities=artifacts.entities,
        tokens=artifacts.tokens,
        tokens_indices=artifacts.tokens_indices,
        lemmas=[token.lemma_ or token.lower_ for token in artifacts.tokens],
        nlp_engine=artifacts.nlp_engine,
        language=_LANGUAGE,
        scores=artifacts.scores,
    )
