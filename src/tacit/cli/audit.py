"""`tacit audit`: make the attacks on a run's release again that its configuration asks for."""

from __future__ import annotations

import secrets
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tacit.cli.options import JsonOption, print_json, say, say_lines, table
from tacit.cli.own_members import show_own_members
from tacit.cli.self_test import show_self_test
from tacit.errors import AuditError, UsageError

if TYPE_CHECKING:
    from tacit.audit.attack import Answer, AttackRow
    from tacit.audit.vocabulary import PlantedWords

__all__ = ["command"]

_PLANTED = 2000
"""Words that are planted for each number of copies."""


RunToAudit = Annotated[
    Path | None,
    typer.Argument(metavar="[RUN]", help="Run folder, as named by `run:` in the configuration; none for --self-test."),
]
VocabularyOption = Annotated[
    bool, typer.Option("--vocabulary", help="Plant words in the run's choice of a vocabulary instead.")
]
SelfTestOption = Annotated[
    bool, typer.Option("--self-test", help="Break the engine on purpose, and see whether the audit finds each break.")
]
SizeOption = Annotated[
    str, typer.Option("--size", help="Of the self-test: small (under a minute on one core), standard or large.")
]
SeedOption = Annotated[
    str, typer.Option("--seed", help="Of the self-test: any text; the same one gives the same result.")
]
MembersOption = Annotated[
    Path | None,
    typer.Option("--members", help="A file of texts that the run has read; attack these instead. With --non-members."),
]
NonMembersOption = Annotated[
    Path | None,
    typer.Option("--non-members", help="A file of texts that it has not read, and that are like the members."),
]
TextFieldOption = Annotated[
    str | None,
    typer.Option("--text-field", help="The field with the text in both files; if not given, that of the run's corpus."),
]


def command(
    run: RunToAudit = None,
    as_json: JsonOption = False,
    vocabulary: VocabularyOption = False,
    self_test: SelfTestOption = False,
    size: SizeOption = "standard",
    seed: SeedOption = "tacit",
    members: MembersOption = None,
    non_members: NonMembersOption = None,
    text_field: TextFieldOption = None,
) -> None:
    """Make the attacks again: exposure of the planted canaries, and what else the run asks for (curator's view: not for publication).

    Only what a public attack finds in the released model may be shown to others. Exit code 5 when that is below
    `audit.max_exposure_p_value`; 6 when coins contradict the proven epsilon. With --vocabulary no private text is read: made-up words
    go through the run's mechanism; exit code 5 when they come out more often than its law allows. With --self-test no run is read:
    tiny models are trained on made-up words by broken engines and the correct one; exit code 5 when a break is not found or the
    correct one is accused. With --members and --non-members, files in any format of a corpus, a finished run is attacked on these
    texts, for the curator alone.
    """
    given = [members, non_members, text_field]
    if self_test:
        if run is not None or vocabulary or any(one is not None for one in given):
            raise UsageError("--self-test audits no run; leave out the run, --vocabulary, --members and --non-members")
        show_self_test(size, seed, as_json)
        return
    if run is None:
        raise UsageError("which run? Give its folder, or --self-test")
    if members is not None and non_members is not None and not vocabulary:
        show_own_members(run, members, non_members, text_field, as_json)
        return
    if any(one is not None for one in given):
        raise UsageError(
            "--members and --non-members go together, and without --vocabulary; --text-field goes with them"
        )
    if vocabulary:
        _audit_vocabulary(run, as_json)
        return
    from tacit.audit.attacks import answer_of, asked_attacks, check_attacks, check_gate
    from tacit.pipeline.attack_files import store
    from tacit.pipeline.attacks import measure
    from tacit.pipeline.opening import open_run
    from tacit.pipeline.stages import walk
    from tacit.runs.folder import RunFolder

    config = RunFolder(run).load_config()
    if config.audit is None:
        raise UsageError(f"{run}: no canaries were planted; add `audit:` to the configuration of a new run")
    config = config.model_copy(update={"run": str(run)})
    check_attacks(config)
    with open_run(config) as state:
        walk(state, until="control")
        attacks = asked_attacks(config)
        found = {attack.name: measure(state, attack) for attack in attacks}
        for attack in attacks:
            if not attack.public:  # the report of the release stays with what its stages found
                store(state.folder, attack, found[attack.name])
        if as_json:
            print_json(found)
        for attack in [] if as_json else attacks:
            answer = answer_of(attack, config, found[attack.name], curator=True)
            if isinstance(answer, str):
                say_lines(f"{attack.name} is {answer}{attack.remedy and '; '}{attack.remedy}\n")
            elif answer is not None:
                say_lines(f"{attack.title}\n{_table(answer)}\n")
                if not attack.public:
                    say(
                        f"{attack.name} is measured on what is not released, and covered by no certificate: do not publish it\n"
                    )
        check_gate(config, found)


def _table(answer: Answer) -> str:
    parameters = list(dict.fromkeys(name for row in answer.rows for name in row.parameters))
    headers = [
        "model",
        "what",
        *parameters,
        "found",
        "95 % interval",
        "chance",
        "p-value",
        "ceiling",
        "without a model",
    ]
    cells = [_cells(row, parameters) for row in answer.rows]
    kept = [place for place in range(len(headers)) if any(row[place] != "-" for row in cells)]
    return table([headers[place] for place in kept], [[row[place] for place in kept] for row in cells])


def _cells(row: AttackRow, parameters: list[str]) -> list[str]:
    from tacit.audit.attack import SHARE

    own = [row.parameters.get(name, "-") for name in parameters]
    baseline = row.baseline
    return [
        row.model,
        row.name,
        *(f"{value:.5g}" if isinstance(value, float) else str(value) for value in own),
        f"{row.value:.3f}" if row.unit == SHARE else f"{row.value:.3f} {row.unit}",
        "-" if row.interval is None else f"{row.interval[0]:.3f} to {row.interval[1]:.3f}",
        str(row.without_null) if row.null is None else f"{row.null:.2f}",
        "-" if row.p_value is None else f"{row.p_value:.2g}",
        "-" if row.ceiling is None else f"{row.ceiling:.1f}",
        "-" if baseline is None else f"{baseline.value:.3f} ({baseline.low:.3f} to {baseline.high:.3f})",
    ]


def _audit_vocabulary(run: Path, as_json: bool) -> None:
    from dataclasses import asdict

    from tacit.audit.vocabulary import plant_words, planted_copies
    from tacit.privacy.ledger import Ledger
    from tacit.randomness import KeyedRandomness
    from tacit.runs.folder import RunFolder

    with Ledger.open(RunFolder(run).ledger, readonly=True) as ledger:
        events = {name: choice for name, plan in ledger.plans.items() if (choice := plan.event.choice) is not None}
    if not events:
        raise UsageError(f"{run}: no words are chosen from private text there, so there is nothing to plant them in")
    found = [
        (name, plant_words(event, copies, words, _PLANTED // words + 1, KeyedRandomness(secrets.token_bytes(32))))
        for name, event in events.items()
        for words in sorted({1, event.max_words})
        for copies in planted_copies(event, words)
    ]
    if as_json:
        print_json([{"stage": name, **asdict(row), "exceeds": row.exceeds} for name, row in found])
    else:
        say_lines(_planted_table(found))
    if any(row.exceeds for _, row in found):
        raise AuditError("audit: planted words come out more often than the law allows; do not publish this release")


def _planted_table(found: list[tuple[str, PlantedWords]]) -> str:
    headers = ["stage", "units", "words each", "planted", "came out", "99.9 % interval", "allowed", "p-value"]
    return table(
        headers,
        [
            [
                name,
                *(str(number) for number in (row.copies, row.words, row.trials, row.shown)),
                f"{row.low:.3g} to {row.high:.3g}",
                f"{row.allowed:.3g}",
                f"{row.p_value:.2g}",
            ]
            for name, row in found
        ],
    )
