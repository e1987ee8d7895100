"""`tacit screen`: find what must not leak in a run's private corpus and split it; or measure how well it is found, on gold."""

from __future__ import annotations

import itertools
import secrets
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from tacit.cli.options import JsonOption, print_json, say, say_lines, table
from tacit.errors import UsageError
from tacit.privacy.rounded import upper

if TYPE_CHECKING:
    from rich.text import Text

    from tacit.config import RunConfig
    from tacit.screening.split import Judged, Placed

__all__ = ["command"]

ConfigArgument = Annotated[
    Path | None, typer.Argument(metavar="CONFIG", help="YAML configuration with a section `screening`.")
]
MeasureOption = Annotated[
    Path | None,
    typer.Option(
        metavar="GOLD",
        help='Measure on gold labels instead, JSON lines: {"text": ..., "spans": [[start, end, label], ...]}.',
    ),
]
BalancedOption = Annotated[
    Path | None, typer.Option(metavar="FILE", help="With --measure: a policy of your own as pi.")
]
ConservativeOption = Annotated[
    Path | None, typer.Option(metavar="FILE", help="With --measure: a policy of your own as pi_c.")
]
OutOption = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE", help="With --measure: write what was found to a new file, for `screening.measurement` of a run."
    ),
]
DataPointOption = Annotated[
    Literal["record", "line"],
    typer.Option(help="With --measure: what each gold record is one of, as `screening.data_point` of the run."),
]
PreviewOption = Annotated[
    int | None,
    typer.Option(min=1, metavar="N", help="Only show the first N data points, before and after; on a terminal."),
]
PreviewFileOption = Annotated[
    Path | None, typer.Option(metavar="PATH", help="Write the preview to a file inside RUN/private.")
]


def command(
    config: ConfigArgument = None,
    measure: MeasureOption = None,
    balanced: BalancedOption = None,
    conservative: ConservativeOption = None,
    out: OutOption = None,
    data_point: DataPointOption = "record",
    preview: PreviewOption = None,
    preview_file: PreviewFileOption = None,
    as_json: JsonOption = False,
) -> None:
    """Screen a run's private corpus: redact, deduplicate, split into RUN/private/screened. `tacit run` does it too.

    What it leaves there is private, the counts of receipt.json (and of --json) included. Run it again to continue after a stop.
    With --measure GOLD it measures both policies on gold labels instead; nothing is written then but FILE of --out, which holds the
    counts and no text.
    """
    if (config is None) == (measure is None):
        raise UsageError("give either a configuration to screen its corpus, or --measure GOLD to measure the policies")
    if measure is not None:
        if preview is not None or preview_file is not None:
            raise UsageError("--preview and --preview-file show a corpus: give a configuration, not --measure")
        _measure(measure, balanced, conservative, out, data_point, as_json)
        return
    assert config is not None
    if out is not None or data_point != "record":
        raise UsageError("--out and --data-point go with --measure")
    if balanced is not None or conservative is not None:
        raise UsageError(
            "--balanced and --conservative go with --measure; in a configuration: screening.balanced, screening.conservative"
        )
    from tacit.config import load_config
    from tacit.progress import without_warnings

    if preview is None and preview_file is None:
        with without_warnings():
            _screen(load_config(config), as_json)
    elif preview is None or as_json:
        raise UsageError("a preview needs --preview N, and is no JSON")
    else:
        _preview(load_config(config), preview, preview_file)


# A corpus -------------------------------------------------------------------------------------------------------------


def _screen(config: RunConfig, as_json: bool) -> None:
    from tacit.pipeline.screening import screened, screened_folder
    from tacit.progress import TerminalReporter
    from tacit.randomness import KeyedRandomness
    from tacit.runs.beginning import begin
    from tacit.screen_plan import plan_of

    _ = plan_of(config)  # before a folder is made
    with begin(config, start_over=False) as begun:
        folder = begun.folder
        receipt = screened(config, folder, KeyedRandomness(begun.key), TerminalReporter())
    if as_json:
        print_json(receipt.to_dict())
    else:
        say(f"{screened_folder(folder)}: done; the counts are in receipt.json, and they are private")


# A look at it ---------------------------------------------------------------------------------------------------------

_STYLES = {"masked": "bold reverse", "unsafe": "underline"}


def _preview(config: RunConfig, count: int, file: Path | None) -> None:
    """Show private text to the curator: on a terminal, or in a file of the run's private folder."""
    from rich.console import Console

    from tacit.files import private_folder
    from tacit.runs.folder import RunFolder

    if file is None:
        if not sys.stdout.isatty():
            raise UsageError(
                "--preview shows private text, so standard output must be a terminal; --preview-file PATH writes it "
                "to a file inside RUN/private"
            )
        console = Console(soft_wrap=True, highlight=False)
        for text in _previewed(config, count):
            console.print(text)
        return
    private = RunFolder(config.resolved_run).private
    if not file.resolve().is_relative_to(private.resolve()):
        raise UsageError(f"--preview-file {file}: it must lie inside {private}, for it holds private text")
    texts = [text.plain for text in _previewed(config, count)]
    private_folder(private)
    if not file.parent.is_dir() or file.exists():
        raise UsageError(f"--preview-file {file}: name a new file in a folder that is there")
    file.write_text("\n".join(texts) + "\n", encoding="utf-8", errors="backslashreplace")
    say(f"{file}: written; it holds private text")


def _previewed(config: RunConfig, count: int) -> Iterator[Text]:
    from rich.text import Text

    for number, (judged, placed) in enumerate(_judged(config, count), start=1):
        why = {"private": "masked" if judged.masked else "not known to be safe", "public": "known to be safe"}
        reason = "copy of an earlier one" if placed.duplicate else why[placed.stream]
        yield Text(f"{number}  {placed.stream}: {reason}", style="bold")
        yield Text("  before  ").append_text(_highlighted(judged))
        yield Text("  after   ").append_text(Text(_visible(placed.text)))


def _judged(config: RunConfig, count: int) -> Iterator[tuple[Judged, Placed]]:
    """The first data points with what becomes of them, as far as that depends on these alone."""
    from tacit.pipeline.records import Corpus, source_of
    from tacit.randomness import KEY_BYTES, KeyedRandomness
    from tacit.screen_plan import plan_of
    from tacit.screening.corpus import policies_of
    from tacit.screening.deduplicate import KeepFirst
    from tacit.screening.split import Screener, Splitter, Stream, deduplicated_streams

    plan = plan_of(config)
    streams = KeyedRandomness(secrets.token_bytes(KEY_BYTES))  # only to tell copies apart, here and now
    copies: dict[Stream, KeepFirst] = {}
    if plan.copies is not None:
        compared = deduplicated_streams(plan.deduplicate)
        copies |= {stream: KeepFirst(plan.copies, streams.child(stream)) for stream in compared}
    splitter = Splitter(copies, plan.deduplicate)
    screener = Screener(**policies_of(plan), kind=plan.data_point)
    judged = (one for record in Corpus(source_of(config.private)) for one in screener.judge([record.text])[0])
    return ((one, splitter.place(one.point)) for one in itertools.islice(judged, count))


def _highlighted(judged: Judged) -> Text:
    """The raw text with what pi masks, or else what pi_c marks; in brackets too, for eyes and files without colours."""
    from rich.text import Text

    from tacit.screening.spans import merged

    kind = "masked" if judged.masked else "unsafe"
    shown, done = Text(), 0
    for start, end in merged(judged.masked or judged.unsafe):
        shown.append(_visible(judged.raw[done:start]))
        shown.append(f"[{_visible(judged.raw[start:end])}]", style=_STYLES[kind])
        done = end
    return shown.append(_visible(judged.raw[done:]))


def _visible(text: str) -> str:
    """Text that cannot command the terminal: what is not printable is shown as its code."""
    return "".join(one if one.isprintable() or one == "\n" else repr(one)[1:-1] for one in text)


# Gold -----------------------------------------------------------------------------------------------------------------


def _measure(
    gold: Path,
    balanced: Path | None,
    conservative: Path | None,
    out: Path | None,
    data_point: Literal["record", "line"],
    as_json: bool,
) -> None:
    """What both policies find, and catch alike (`tacit.screening.measure`)."""
    from tacit.files import write_json
    from tacit.planning.measured import measurement_of
    from tacit.screening.measure import measure, read_gold
    from tacit.screening.policy import POLICIES, load_policy, package_policy

    files: dict[str, Path | None] = dict(zip(POLICIES, (balanced, conservative), strict=True))
    if out is not None and (out.exists() or not out.parent.is_dir()):
        raise UsageError(f"--out {out}: name a new file in a folder that is there")
    policies = {name: package_policy(name) if file is None else load_policy(file) for name, file in files.items()}
    measured = dict(zip(files, measure([*policies.values()], read_gold(gold, data_point), alike=True), strict=True))
    found = {name: result.to_dict() for name, result in measured.items()}
    if out is not None:
        write_json(out, measurement_of(gold, policies, measured, data_point).to_dict())
    if as_json:
        print_json(found)
        return
    say_lines(table(["", *files], _rows(found)))


def _rows(found: dict[str, dict[str, Any]]) -> list[list[str]]:
    """A row for each number and for each label."""
    both = list(found.values())
    labels = both[0]["spans_per_label"]
    percent = int(100 * both[0]["confidence"])
    numbers = {
        f"recall of {sum(labels.values())} spans": "recall",
        "precision by characters": "precision",
        "documents with a miss": "documents_with_a_miss",
        "characters marked": "marked_share",
    }
    rows = [[title, *(_number(values[key], ".4f") for values in both)] for title, key in numbers.items()]
    rows.insert(1, ["leave a trace", *(_number(values["not_alike"], ".4f") for values in both)])
    rows.append([f"gamma at most ({percent} %)", upper(both[0]["gamma_upper"]), "-"])
    rows.append([f"leave a trace, at most ({percent} %)", _upper(both[0]["gamma_alike_upper"]), "-"])
    rows.append([f"delta_2 at most ({percent} %)", "-", upper(both[1]["delta2_upper"])])
    for label, count in labels.items():
        rows.append([f"recall of {count} {label}", *(f"{values['per_label'][label]:.4f}" for values in both)])
    return rows


def _upper(value: float | None) -> str:
    return "-" if value is None else upper(value)


def _number(value: float | None, form: str) -> str:
    return "-" if value is None else format(value, form)
