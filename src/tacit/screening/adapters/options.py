"""What a policy file may say about a detector: one class of options for each kind of `tacit.screening.adapters.registry.DETECTORS`.

The class also says what else there is to know of its kind. The module of a detector, and the library behind it, is imported when it
is asked for.
"""

from __future__ import annotations

from abc import abstractmethod
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, NamedTuple

from pydantic import BaseModel, ConfigDict, Field, PrivateAttr

from tacit.screening.spans import Detector

__all__ = [
    "AdapterOptions",
    "HuggingFaceOptions",
    "NamedModel",
    "PrecomputedOptions",
    "PresidioOptions",
    "SpacyOptions",
    "TextsOptions",
]

Score = Annotated[float, Field(ge=0, le=1)]
Count = Annotated[int, Field(ge=1, le=2**40)]
Word = Annotated[str, Field(min_length=1)]


class _Options(BaseModel):
    """Options of a policy file, whose folder is no plain value: a policy keeps its digest when it moves."""

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True, allow_inf_nan=False)

    _folder: Path = PrivateAttr(default=Path())

    def model_post_init(self, context: Any, /) -> None:
        """Take the policy file's folder from the check's context, if it has one."""
        if isinstance(context, Path):
            self._folder = context

    def located(self, path: str) -> Path:
        """A path of the options: a relative one is relative to the policy file."""
        return self._folder / path

    def located_model(self, name: str) -> str:
        """The folder of this name beside the policy file, or else the name, as of an installed package."""
        return str(self.located(name)) if self.located(name).is_dir() else name


class NamedModel(NamedTuple):
    """A model on this machine that options name.

    Args:
        option: by which it is named.
        value: a folder, or the name of an installed package; None where none is named.
        public: whether the user says that it was made from public text alone.
    """

    option: str
    value: str | None
    public: bool


class AdapterOptions(_Options):
    """What is asked of every kind.

    ``library``: the package whose version counts for what is found; None where no library marks anything.
    ``reads_any_text``: False where spans are known of certain texts only.
    """

    library: ClassVar[str | None]
    reads_any_text: ClassVar[bool] = True

    @abstractmethod
    def detector(self) -> Detector:
        """The detector, not yet checked; see `tacit.screening.adapters.registry.detector_from_options`."""

    def named_model(self) -> NamedModel | None:
        """The model that marks; None where this kind has none."""
        return None


class PresidioOptions(AdapterOptions):
    """Microsoft Presidio's recognisers of forms; with ``pipeline`` also its recogniser of named entities.

    Args:
        entities: only these of Presidio's entities, such as ``PHONE_NUMBER``; left out: all.
        pipeline: a spaCy pipeline on this machine (folder, or name of an installed package); left out: no named entities.
        public: the pipeline was made from public text alone. A run asks for it where no certificate says what it was made from.
    """

    library = "presidio-analyzer"

    kind: Literal["presidio"] = "presidio"
    entities: Annotated[tuple[Word, ...], Field(min_length=1)] | None = None
    pipeline: Word | None = None
    public: bool = False

    @property
    def resolved_pipeline(self) -> str | None:
        """The pipeline's folder, or its name; None where none is named."""
        return None if self.pipeline is None else self.located_model(self.pipeline)

    def detector(self) -> Detector:
        """See `AdapterOptions`."""
        from tacit.screening.adapters.presidio import PresidioDetector

        return PresidioDetector(self)

    def named_model(self) -> NamedModel:
        """See `AdapterOptions`."""
        return NamedModel("pipeline", self.resolved_pipeline, self.public)


class SpacyOptions(AdapterOptions):
    """The entities of a spaCy pipeline.

    Args:
        pipeline: a folder, or the name of an installed package. It is never downloaded.
        labels: other names for the pipeline's labels; a label that is not here keeps its own name.
        score: the score of every span; spaCy itself gives none.
        public: as of `PresidioOptions`.
    """

    library = "spacy"

    kind: Literal["spacy"] = "spacy"
    pipeline: Word
    labels: dict[Word, Word] = {}
    score: Score = 1.0
    public: bool = False

    @property
    def resolved_pipeline(self) -> str:
        """The pipeline's folder, or its name."""
        return self.located_model(self.pipeline)

    def detector(self) -> Detector:
        """See `AdapterOptions`."""
        from tacit.screening.adapters.spacy_ner import SpacyDetector

        return SpacyDetector(self)

    def named_model(self) -> NamedModel:
        """See `AdapterOptions`."""
        return NamedModel("pipeline", self.resolved_pipeline, self.public)


class HuggingFaceOptions(AdapterOptions):
    """A token-classification model in a local folder, with the two thresholds of Zhao et al. 2022, appendix A.4.

    Args:
        folder: the model and its fast tokenizer, as ``save_pretrained`` writes them.
        least_tag_score: a token is marked when any tag has this probability or more (0.3 in pi and pi_c).
        least_plain_score: a token is marked too when a tag is likelier than plain text, or plain text has less than this
            probability (0.9 in pi_c); left out: it is not (pi).
        plain_label: the model's label of plain text.
        labels: other names for the tags' types (without ``B-`` and the like); one that is not here keeps its own name.
        window: tokens of a window, special tokens included; left out: as many as the model takes, at most 512.
        overlap: tokens that a window shares with the next one; left out: a quarter of it, at most 64.
        batch_size: windows of one text that the model reads at once.
        device: where the model runs, in torch's words.
        public: the model was made from public text alone. A run asks for it where no certificate says what it was made from.
    """

    library = "transformers"

    kind: Literal["huggingface"] = "huggingface"
    folder: Word
    least_tag_score: Annotated[float, Field(gt=0, le=1)] = 0.3
    least_plain_score: Score | None = None
    plain_label: Word = "O"
    labels: dict[Word, Word] = {}
    window: Count | None = None
    overlap: Annotated[int, Field(ge=0, le=2**40)] | None = None
    batch_size: Count = 16
    device: Word = "cpu"
    public: bool = False

    def detector(self) -> Detector:
        """See `AdapterOptions`."""
        from tacit.screening.adapters.huggingface import HuggingFaceDetector

        return HuggingFaceDetector(self)

    def named_model(self) -> NamedModel:
        """See `AdapterOptions`."""
        return NamedModel("folder", str(self.located(self.folder)), self.public)


class TextsOptions(_Options):
    """The corpus whose texts precomputed spans belong to (`tacit.corpus.Source`)."""

    path: Word
    format: Literal["auto", "txt", "jsonl", "csv", "parquet", "conll"] = "auto"
    text_field: Word = "text"
    id_field: Word | None = None
    max_record_bytes: Count = 1_000_000


class PrecomputedOptions(AdapterOptions):
    """Spans that were computed elsewhere, in a file.

    Args:
        path: JSON lines or CoNLL; may be gzipped.
        format: ``auto`` goes by the ending: .jsonl, .conll, .bio or .iob.
        texts: the corpus with the texts, where the file holds only ids or tokens.
        score: the score of spans that have none of their own.
    """

    library = None
    reads_any_text = False

    kind: Literal["precomputed"] = "precomputed"
    path: Word
    format: Literal["auto", "jsonl", "conll"] = "auto"
    texts: TextsOptions | None = None
    score: Score = 1.0

    def detector(self) -> Detector:
        """See `AdapterOptions`."""
        from tacit.screening.adapters.precomputed import PrecomputedDetector

        return PrecomputedDetector(self)
