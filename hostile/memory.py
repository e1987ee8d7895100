"""Too little memory, at many sizes: a start ends with one line without private text, and leaves a folder that goes on."""

from __future__ import annotations

import resource
from collections.abc import Callable
from pathlib import Path

from hostile.attack import Attack, Outcome, Setting
from hostile.children import Child, Ended, complaint, start
from hostile.endings import differences, differs_by_rounding, twice_spent
from hostile.starts import begun, resume

__all__ = ["MEMORY"]

_STARTS = 6
_MOST = 96 << 20
"""Bytes above what the imported libraries take, within which a tiny run finds too little."""

ROUNDED = "other last digits"
"""The mathematics library computes with other kernels when it is refused memory, and says nothing."""

_CASES = ("BERT, histogram", "CRT, two rounds", "fine-tuning with DP", "adaptive, strata", "S-DP, two rounds", "LSTM")


def _address_space() -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmSize:"):
            return int(line.split()[1]) * 1024
    raise RuntimeError("no VmSize in /proc/self/status")


def _limited(more: int) -> Callable[[], None]:
    def prepare() -> None:
        most = _address_space() + more
        resource.setrlimit(resource.RLIMIT_AS, (most, most))

    return prepare


def _judged(ended: Ended) -> str:
    """One line, or the words of a library that gave up (SIGABRT, SIGSEGV): those leave no traceback and no text of ours."""
    if ended.code < 0 and "Traceback" not in ended.err:
        return ""
    return complaint(ended, codes=(0, 1, 2, 4))


def _trial(setting: Setting, row: str, number: int) -> Outcome:
    with setting.trial("memory", row, number) as place:
        one = begun(setting, row)
        config, wrong, codes = one.copy(place.folder), [], []
        for _ in range(_STARTS):
            more = int(_MOST * place.rng.random() ** 2)
            ended = start([one.case.command, config], place.folder / "said", prepare=_limited(more))
            codes.append(ended.code)
            said = _judged(ended)
            leaked = [word for word in one.case.sentinels if word in (ended.out + ended.err).lower()]
            wrong += [f"{more >> 10} KB: {said}"] if said else []
            wrong += [f"{more >> 10} KB: private text in its words"] if leaked else []
        said = resume(one, config, place.folder)
        found = [said] if said else [*differences(place.folder / "run", one.end), *twice_spent(place.folder / "run")]
        notes = [f"exit {code}" for code in codes]
        if not said and found and differs_by_rounding(place.folder / "run", one.end):
            found = twice_spent(place.folder / "run")
            notes.append(ROUNDED)
        wrong += [f"with memory again: {'; '.join(found)[:300]}"] if found else []
        return Outcome(len(codes), tuple(wrong), tuple(notes))


def _leaking() -> None:
    """A known-wrong `tacit`: what cannot be read ends in a traceback."""
    import tacit.runs.beginning as beginning

    def wrong(*arguments: object) -> None:
        raise ValueError("no memory for the key")

    beginning.read_key = wrong


def _control(setting: Setting) -> Outcome:
    with setting.trial("memory", "control", 0) as place:
        one = begun(setting, "LSTM")
        said = _judged(Child(["run", one.copy(place.folder)], place.folder / "said", prepare=_leaking).end())
        return Outcome(1, (said,) if said else ())


MEMORY = Attack(
    title="Too little memory",
    says=(
        "Six starts with an address space (RLIMIT_AS) of 0 to 96 MB more than the imported libraries take, then one without a "
        "limit. Expected: each ends well, with one line, or by a library's signal, without traceback or private text; at last "
        "the same end, or one first differing in the last digits of a phase's weights, with the same account "
        f"(counted as {ROUNDED!r}). Rows count starts."
    ),
    rows=_CASES,
    count=240,
    a_trial=_STARTS,
    trial=_trial,
    control_says="an error of a library's own kind while the key is read",
    control=_control,
)
