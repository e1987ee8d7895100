"""`tacit score`: how surprising a public language model finds each private record; or the constants of rho from public text."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tacit.cli.options import JsonOption, print_json
from tacit.errors import UsageError

if TYPE_CHECKING:
    from tacit.config import RunConfig
    from tacit.corpus.records import Record
    from tacit.scoring.rho import PrivacyProbability
    from tacit.scoring.scorer import ScorerOptions

__all__ = ["command"]

ConfigArgument = Annotated[
    Path | None,
    typer.Argument(metavar="CONFIG", help="YAML configuration whose corpus is scored into RUN/private/scores."),
]
DataOption = Annotated[
    str | None,
    typer.Option(
        metavar="FILE",
        help="A corpus instead of a configuration: a file or a directory, also in an object store (s3://).",
    ),
]
ModelOption = Annotated[
    Path | None,
    typer.Option(
        metavar="FOLDER",
        help="The scorer, if not that of CONFIG: a local Hugging Face GPT-2 or LSTM of ours, trained on public text alone.",
    ),
]
OutOption = Annotated[
    Path | None,
    typer.Option(metavar="PATH", help="A new private folder for the scores; with --fit-public the file for the YAML."),
]
LowerOption = Annotated[
    float | None, typer.Option(metavar="A", help="ln PPL at which rho is 0, from --fit-public; if not that of CONFIG.")
]
UpperOption = Annotated[
    float | None, typer.Option(metavar="B", help="ln PPL at which rho is 1, from --fit-public; if not that of CONFIG.")
]
FitOption = Annotated[
    bool, typer.Option("--fit-public", help="Find both on public text: that of CONFIG, or of --data.")
]
QuantilesOption = Annotated[
    tuple[float, float] | None,
    typer.Option(
        metavar="Q Q", help="With --fit-public: the quantiles of ln PPL that become both; 0.05 0.95 if not given."
    ),
]
LengthOption = Annotated[
    int | None,
    typer.Option(min=1, metavar="N", help="Tokens that the model reads at once; all its positions if not given."),
]
WorkersOption = Annotated[
    int | None, typer.Option(min=1, metavar="N", help="Processes; compute.workers or 2 if not given.")
]
TextFieldOption = Annotated[str, typer.Option(metavar="NAME", help="With --data: the field that holds the text.")]
IdFieldOption = Annotated[
    str | None, typer.Option(metavar="NAME", help="With --data: the field that holds the id; else file and line.")
]

_WORKERS = 2


def command(
    config: ConfigArgument = None,
    data: DataOption = None,
    model: ModelOption = None,
    out: OutOption = None,
    lower: LowerOption = None,
    upper: UpperOption = None,
    fit_public: FitOption = False,
    quantiles: QuantilesOption = None,
    length: LengthOption = None,
    workers: WorkersOption = None,
    text_field: TextFieldOption = "text",
    id_field: IdFieldOption = None,
    as_json: JsonOption = False,
) -> None:
    """Score records by a public language model: id, ln PPL and privacy probability rho. Run it again to continue after a stop.

    The scores, and how rho is distributed, are private. With --fit-public it prints the two constants of rho instead.
    """
    if (config is None) == (data is None):
        raise UsageError("give either a configuration, or --data FILE")
    if config is not None and (text_field != "text" or id_field is not None):
        raise UsageError(
            "--text-field and --id-field go with --data; in a configuration: private.text_field, private.id_field"
        )
    if fit_public and (lower is not None or upper is not None):
        raise UsageError("--fit-public finds --lower and --upper; leave them out")
    if not fit_public and quantiles is not None:
        raise UsageError("--quantiles goes with --fit-public")
    if not fit_public and config is None and out is None:
        raise UsageError("give --out FOLDER with --data: a new folder for the scores, which are private")
    from tacit.config import load_config
    from tacit.progress import without_warnings
    from tacit.scoring.public import require_public_scorer, scorer_folder
    from tacit.scoring.scorer import ScorerOptions

    run = None if config is None else load_config(config)
    model, length, lower, upper = _chosen(run, model, length, lower, upper)
    rho = None if fit_public else _rho(lower, upper)
    options = ScorerOptions(scorer_folder(model), length)
    public = require_public_scorer(options.folder)
    if rho is None:
        corpus = _public_corpus(run) if run is not None else _corpus(data, text_field, id_field)
        _fit(corpus, options, quantiles or (0.05, 0.95), workers or _workers(run), out, public, as_json)
        return
    with without_warnings():
        if run is not None:
            target = _score_run(run, options, rho, out, workers)
        else:
            assert out is not None
            target = _score_data(_corpus(data, text_field, id_field), options, rho, out, workers or _WORKERS)
    if as_json:
        print_json(
            {
                "scores": str(target),
                "lower": rho.lower,
                "upper": rho.upper,
                "scorer": str(options.folder),
                "public": public,
            }
        )
    else:
        typer.echo(f"{target}: done; the scores and the plots of rho are private. The scorer is public {public}")


def _chosen(
    run: RunConfig | None, model: Path | None, length: int | None, lower: float | None, upper: float | None
) -> tuple[Path, int | None, float | None, float | None]:
    """Model, length and constants: those of the options, then those of the configuration."""
    adaptive = None if run is None else run.adaptive
    if adaptive is not None:
        scorer = adaptive.scorer
        if model is None and scorer.phase is not None:
            raise UsageError(
                f"the scorer is the phase {scorer.phase}, which `tacit run` trains and scores with; give another one with --model "
                "FOLDER and --out PATH"
            )
        model = scorer.resolved_folder if model is None else model
        length = scorer.length if length is None else length
        lower = adaptive.lower if lower is None else lower
        upper = adaptive.upper if upper is None else upper
    if model is None:
        raise UsageError("give the public scorer with --model FOLDER")
    return model, length, lower, upper


def _rho(lower: float | None, upper: float | None) -> PrivacyProbability:
    from tacit.scoring.rho import PrivacyProbability

    if lower is None or upper is None:
        raise UsageError(
            "give --lower A and --upper B (in a configuration adaptive.lower and adaptive.upper), from `tacit score --fit-public`"
        )
    return PrivacyProbability(lower, upper)


def _workers(run: RunConfig | None) -> int:
    return _WORKERS if run is None else run.compute.workers


# Corpora --------------------------------------------------------------------------------------------------------------


class _Records:
    """Records that are read anew each time."""

    def __init__(self, read: Callable[[], Iterator[Record]]) -> None:
        self._read = read

    def __iter__(self) -> Iterator[Record]:
        return self._read()


def _corpus(data: str | None, text_field: str, id_field: str | None) -> _Records:
    from tacit.corpus.places import place
    from tacit.corpus.readers import read_records
    from tacit.corpus.source import Source

    assert data is not None
    source = Source(place(data), text_field=text_field, id_field=id_field)
    return _Records(lambda: read_records(source))


def _public_corpus(run: RunConfig) -> _Records:
    from tacit.corpus.readers import read_records
    from tacit.pipeline.records import source_of

    if not run.public:
        raise UsageError("the configuration names no public corpus; give public text with --data FILE")
    sources = [source_of(options) for options in run.public]
    return _Records(lambda: itertools.chain.from_iterable(map(read_records, sources)))


@contextmanager
def _bar(name: str) -> Iterator[Callable[[int, int], None]]:
    """A bar that shows the share of the text: how much there is, is private."""
    from tacit.pipeline.scoring import SCORING_STEPS
    from tacit.progress import TerminalReporter

    with TerminalReporter().stage(name, SCORING_STEPS) as bar:
        yield lambda done, total: bar.advance_to(SCORING_STEPS * done // max(total, 1))
        bar.advance_to(SCORING_STEPS)


# Scores ---------------------------------------------------------------------------------------------------------------


def _score_run(
    run: RunConfig, options: ScorerOptions, rho: PrivacyProbability, out: Path | None, workers: int | None
) -> Path:
    from tacit.pipeline.scoring import scored
    from tacit.progress import TerminalReporter
    from tacit.randomness import KeyedRandomness
    from tacit.runs.beginning import begin

    if workers is not None:
        run = run.model_copy(update={"compute": run.compute.model_copy(update={"workers": workers})})
    options.load()  # before a folder is made
    with begin(run, start_over=False) as begun:
        return scored(run, begun.folder, KeyedRandomness(begun.key), options, rho, TerminalReporter(), out)


def _score_data(corpus: _Records, options: ScorerOptions, rho: PrivacyProbability, out: Path, workers: int) -> Path:
    from tacit.scoring.scoring import score_corpus

    with _bar("Scoring") as advance:
        score_corpus(corpus, options, rho, out, advance, workers=workers)
    return out


# Constants ------------------------------------------------------------------------------------------------------------


def _fit(
    corpus: _Records,
    options: ScorerOptions,
    quantiles: tuple[float, float],
    workers: int,
    out: Path | None,
    public: str,
    as_json: bool,
) -> None:
    from tacit.files import write_text
    from tacit.scoring.scoring import fit_public

    if out is not None and not out.absolute().parent.is_dir():
        raise UsageError(f"--out {out}: there is no such folder to write the file into")
    with _bar("Scoring public text") as advance:
        rho, records = fit_public(corpus, options, quantiles, advance, workers=workers)
    text = (
        f"# ln PPL of {records} public records under {options.folder}: the quantiles {quantiles[0]:g} and {quantiles[1]:g}\n"
        f"adaptive:\n  lower: {rho.lower!r}\n  upper: {rho.upper!r}\n"
    )
    if out is not None:
        write_text(out, text)
    if as_json:
        values: dict[str, Any] = {"lower": rho.lower, "upper": rho.upper, "quantiles": quantiles, "records": records}
        print_json({**values, "scorer": str(options.folder), "public": public})
    else:
        typer.echo(text, nl=False)
        typer.echo(f"the scorer is public {public}", err=True)
