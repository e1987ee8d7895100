"""All facts of one run, which agree with each other."""

from __future__ import annotations

import datetime
import math
from typing import Annotated, Self

from pydantic import AfterValidator, Field, StringConstraints, model_validator

from tacit.report.schema.adaptive import AdaptiveFacts
from tacit.report.schema.attacks import AttackFacts
from tacit.report.schema.guarantee import ConfidentialityLine, Guarantee, MissedShare, ProvedCurve, Said, WhoseEpsilon
from tacit.report.schema.ledger import CumulativePoint, LedgerRow
from tacit.report.schema.model import Example, ModelFacts, PhaseRow, UtilityRow, VocabularyFacts
from tacit.report.schema.values import CURATOR_TEXT, Facts, HexDigest, Note, Text

__all__ = ["IdentifierRow", "ReleasedFile", "ReportData"]


def _check_iso_day(value: str) -> str:
    try:
        datetime.date.fromisoformat(value)
    except ValueError:
        # the standard library's message repeats the value
        raise ValueError("a day must be in ISO 8601") from None
    return value


class ReleasedFile(Facts):
    """A file of the release and its SHA-256."""

    path: Text
    sha256: Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")]


class IdentifierRow(Facts):
    """One of the 18 identifiers of 45 CFR 164.514(b)(2)(i) (HIPAA), and what the run's screening looks for of it.

    Args:
        labels: of the detections that are marked; none: nothing is looked for.
        note: what is not looked for.
    """

    identifier: Text
    labels: tuple[Text, ...]
    note: Note = ""


class ReportData(Facts):
    """The facts of one run.

    Args:
        begun: the day (UTC) on which the run began, in ISO 8601; None of runs that an earlier version began. No later time is in a
            release: how long a run takes depends on the private text. So the report never reads a clock.
        config_digest, ledger_head: hexadecimal digests.
        cumulative: one point a stage; the last one is the certified epsilon.
        attacks: what each attack found; rows of the control, and attacks that read private text, only in a curator's copy.
        examples: what the models write for public texts.
        confidentiality: of a run with screening, its statement; it stands apart from epsilon, which is then infinite.
        missed_shares: the bounds on the misses of its policies.
        verdict: the page's first words; left out here, and put into report.json when it is written.
        adaptive: of a run with adaptive DP, epsilon as a function of rho; its largest is no more than the certified one.
        curve: the proved trade-off of an attacker; None where nothing is proved.
        whose: epsilon of a part of a unit, of a unit, and of several together.
        identifiers: of a run whose text is screened, what its policy looks for of each identifier that US law names.
        license: a licence identifier for the model card. The owner of the text decides, hence the default.
        budget_epsilon: the budget that the run was given, if any: a line in the plot.
        curator_copy: the copy for the private folder; it may hold values outside the guarantee and says so in red.

    Raises:
        pydantic.ValidationError: (a ValueError) a field is unknown, malformed, or contradicts another.
    """

    title: Text
    tacit_version: Text
    begun: Annotated[Text, AfterValidator(_check_iso_day)] | None
    run_name: Text
    config_digest: HexDigest
    ledger_head: HexDigest
    guarantee: Guarantee
    ledger: tuple[LedgerRow, ...]
    cumulative: tuple[CumulativePoint, ...]
    attacks: tuple[AttackFacts, ...]
    utility: tuple[UtilityRow, ...]
    examples: tuple[Example, ...] = ()
    vocabulary: VocabularyFacts
    model: ModelFacts
    phases: tuple[PhaseRow, ...]
    files: tuple[ReleasedFile, ...]
    confidentiality: tuple[ConfidentialityLine, ...] = ()
    missed_shares: tuple[MissedShare, ...] = ()
    verdict: Said | None = None
    adaptive: AdaptiveFacts | None = None
    curve: ProvedCurve | None = None
    whose: tuple[WhoseEpsilon, ...] = ()
    identifiers: tuple[IdentifierRow, ...] = ()
    license: Text = "unknown"
    budget_epsilon: Annotated[float, Field(gt=0)] | None = None
    curator_copy: bool = False

    @model_validator(mode="after")
    def _nothing_outside_the_guarantee(self) -> Self:
        if not self.curator_copy and any(row.corpus == CURATOR_TEXT for row in self.utility):
            raise ValueError(
                "exact scores of private text are outside the ledger; leave them out, or make a curator's copy"
            )
        if not self.curator_copy and not all(attack.public for attack in self.attacks):
            raise ValueError(
                "what an attack finds that reads private text is a function of it outside the ledger; leave it out, or make a "
                "curator's copy"
            )
        if not self.curator_copy and any(attack.control is not None for attack in self.attacks):
            raise ValueError(
                "rows of the control are functions of the private text outside the ledger; leave them out, or make a "
                "curator's copy"
            )
        return self

    @model_validator(mode="after")
    def _parts_agree(self) -> Self:
        numbers = [row.sequence for row in self.ledger]
        if numbers != sorted(set(numbers)):
            raise ValueError("ledger rows must be in order, each sequence number once")
        attacks = [attack.name for attack in self.attacks]
        if len(attacks) != len(set(attacks)):
            raise ValueError("each attack has one part of the report")
        certified = self.guarantee.certified.epsilon
        if self.cumulative and not math.isclose(self.cumulative[-1].epsilon, certified, rel_tol=1e-3):
            raise ValueError("the last cumulative epsilon is not the certified one")
        if not self.guarantee.is_proved and (self.curve is not None or self.whose):
            raise ValueError("without a guarantee there is no proved curve, and no epsilon of anybody")
        bands = self.adaptive.bands if self.adaptive else ()
        if any(band.epsilon > certified * (1 + 1e-9) for band in bands):
            raise ValueError("a band has a larger epsilon than the certified one")
        return self
