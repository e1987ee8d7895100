"""The folder of a loop of one's own: locked, with its plan and its ledger, in which every step is paid before it begins.

There is no key in it. Each start of the loop draws one, which is in memory alone, and the ledger holds its fingerprint. A step that
was begun is never begun again, whatever became of it. So no draw is ever repeated over other weights, data or code, and nothing that
a copy of the folder holds makes the noise of another copy known (docs/decisions/0010-own-loops-draw-a-fresh-key.md).

On disk the ledger comes first and then ``loop.json``, which has the plan in words that a person can read.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from tacit.errors import LedgerError, UsageError
from tacit.files import write_private_json
from tacit.planning.own_loop import STAGE, START_OF_LOOP, StepPlan
from tacit.privacy.certificate import is_certified
from tacit.privacy.events import EVERY_PART
from tacit.privacy.ledger import Ledger
from tacit.privacy.provenance import MADE_BY, NOISE_SOURCE, START
from tacit.privacy.strict_json import read_strict
from tacit.randomness import KeyedRandomness
from tacit.runs.folder import RunFolder, taken
from tacit.training.plans import DpPlan
from tacit.version import VERSION

__all__ = ["LoopFolder", "begin_loop", "read_plan", "refuse_other_folders"]

_TRAINED = "what is trained"
_MOST_BYTES = 1 << 20


@dataclass(frozen=True)
class LoopFolder:
    """The folder of a loop that is open for this process alone.

    Args:
        dp: the plan of a step, with the noise that is in the ledger.
        key: of this start; never written.
    """

    folder: RunFolder
    dp: DpPlan
    ledger: Ledger
    key: bytes

    @property
    def paid(self) -> int:
        """Steps that were begun, by this start and earlier ones."""
        return self.ledger.spent(STAGE)

    def pay(self) -> int:
        """Pay for the next step, and give its number; on disk and synced when this returns."""
        step = self.paid
        self._bind_key()
        self.ledger.charge(STAGE, step)
        return step

    def _bind_key(self) -> None:
        """The fingerprint of this start's key is in the ledger before the first step that is drawn with it."""
        commitment = KeyedRandomness(self.key).commitment()
        number = 1
        while (known := self.ledger.bound(_key_name(number))) is not None:
            if known == commitment:
                return
            number += 1
        self.ledger.bind(_key_name(number), commitment)


@contextmanager
def begin_loop(folder: RunFolder, plan: StepPlan, key: bytes, trained: str, noise: str) -> Iterator[LoopFolder]:
    """Make or continue the folder of a loop.

    Args:
        key: of this start.
        trained: names and shapes of what is trained, as a digest: the same at every start.
        noise: what the training noise is drawn from, in words.

    Raises:
        UsageError: the folder is another run's, has another plan, is certified already, or is in use.
        BudgetError: the plan exceeds its own budget.
        LedgerError: the ledger is missing, or damaged; something else is trained than before.
    """
    plan.check_budget()
    header = plan.header(KeyedRandomness(key).commitment())
    refuse_other_folders(folder)
    with taken(folder), _open_ledger(folder, plan, header.key_commitment) as ledger:
        if is_certified(ledger):
            raise UsageError(
                f"{folder.root}: this loop has its certificate, and no step comes after it; use another folder"
            )
        ledger.bind(MADE_BY, VERSION)
        ledger.bind(START, json.dumps(START_OF_LOOP.to_dict(), sort_keys=True))
        ledger.bind(NOISE_SOURCE, noise)
        ledger.bind(_TRAINED, trained)
        known = ledger.plans.get(STAGE)
        dp = plan.dp if known is None else plan.with_noise_of(known.event)
        ledger.plan(STAGE, dp.event, plan.steps, EVERY_PART)
        if not folder.loop_plan.exists():
            write_private_json(folder.loop_plan, plan.values())
        yield LoopFolder(folder, dp, ledger, key)


def read_plan(folder: RunFolder) -> StepPlan:
    """The plan in the folder.

    Raises:
        UsageError: this is not the folder of a loop.
        DataError: it is damaged.
    """
    path = folder.loop_plan
    if not path.is_file():
        raise UsageError(f"{folder.root}: not the folder of a loop (no {path.name}); `tacit.PrivateSteps` makes one")
    return StepPlan.from_values(read_strict(path, _MOST_BYTES), str(path))


def refuse_other_folders(folder: RunFolder) -> None:
    """Raises:
    UsageError: this is the folder of a run or of a fine-tuning.
    """
    for path in (folder.config, folder.finetune_config):
        if path.exists():
            raise UsageError(
                f"{folder.root}: a run of tacit has this folder ({path.name}); use another one for the loop"
            )


def _open_ledger(folder: RunFolder, plan: StepPlan, commitment: str) -> Ledger:
    if not folder.ledger.exists():
        if folder.loop_plan.exists() or folder.release.exists():
            raise LedgerError(
                f"{folder.ledger}: the ledger is missing, and its steps were paid in it; bring it back, or use another folder"
            )
        return Ledger.create(folder.ledger, plan.header(commitment))
    ledger = Ledger.open(folder.ledger)
    try:
        if ledger.header != plan.header(ledger.header.key_commitment):
            raise UsageError(
                f"{folder.root}: this loop was begun with another plan{_differences(folder, plan)}; use another folder"
            )
        begun = ledger.bound(MADE_BY)
        if begun not in (None, VERSION):
            raise LedgerError(
                f"{folder.root}: begun by tacit {begun}, and this is {VERSION}; end it with that version, or use another folder"
            )
    except BaseException:
        ledger.close()
        raise
    return ledger


def _differences(folder: RunFolder, plan: StepPlan) -> str:
    """Which options differ; none, where the folder's plan is not there or is the ledger's of another make."""
    if not folder.loop_plan.is_file():
        return ""
    old, new = read_plan(folder).values(), plan.values()
    differ = [f"{name} was {old[name]!r} and is {new[name]!r}" for name in new if old[name] != new[name]]
    return f" ({'; '.join(differ)})" if differ else ""


def _key_name(number: int) -> str:
    return f"the key of start {number}"
