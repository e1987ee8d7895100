"""What the attacks found, as rows of one kind: a value beside what chance gives. The report knows no attack by its name."""

from __future__ import annotations

import math
from typing import Annotated, Literal, Self

from pydantic import Field, StringConstraints, model_validator

from tacit.report.schema.values import (
    EPSILON,
    RELEASED,
    SHARE,
    Facts,
    Interval,
    Note,
    Parameters,
    Probability,
    Text,
)

__all__ = ["AttackFacts", "AttackRow", "Estimated", "Term"]

_SLACK = 1e-9


class Estimated(Facts):
    """A number and its 95 % interval."""

    value: float
    low: float
    high: float

    @model_validator(mode="after")
    def _in_order(self) -> Self:
        if not self.low - _SLACK <= self.value <= self.high + _SLACK:
            raise ValueError("an interval must hold its value")
        return self


class AttackRow(Facts):
    """One number that an attack found in one model.

    Args:
        model: which model was attacked.
        name: what was measured.
        value: the number, in ``unit``; larger is more given away. A share lies between 0 and 1, and so do all its numbers.
        null: what is expected of a model that learned nothing.
        without_null: why there is no null, where there is none.
        p_value: the probability of at least this value in such a model.
        interval: 95 % of the value.
        ceiling: the value where everything is given away.
        baseline: the same reached without any model. Where it does not hold the null, the value says nothing about the model.
        test: rows of one model with the same one are judged as one test.
        judged: whether the verdict looks at the row.
        parameters: how it was measured.
        words: the row as a sentence, without its full stop.
        assumes: what a lower bound on epsilon rests on beside the attack: such a one contradicts no proof.
        false_alarms: of a share of members that were found, the chance with which the same attacker accuses one who is no member: a
            point below the proved curve.

    A row in the unit "epsilon" is a lower bound on epsilon: its ceiling is the most that an attack could have shown.
    """

    model: Literal["released model", "control without DP", "control without noise"]
    name: Text
    value: float
    unit: Text
    null: float | None = None
    without_null: Text | None = None
    p_value: Probability | None = None
    interval: Interval | None = None
    ceiling: float | None = None
    baseline: Estimated | None = None
    test: Text
    judged: bool = True
    parameters: Parameters = Field(default_factory=dict)
    words: Note = ""
    assumes: Note = ""
    false_alarms: Probability | None = None

    @property
    def is_lower_bound(self) -> bool:
        """Whether the value is a lower bound on epsilon of the released model."""
        return self.unit == EPSILON and self.model == RELEASED

    @property
    def above_chance(self) -> bool:
        """Whether the interval lies above the null, where without any model it is not so: something comes from the model."""
        if self.null is None or self.interval is None or not self.interval[0] > self.null:
            return False
        return self.baseline is None or self.baseline.low <= self.null <= self.baseline.high

    @model_validator(mode="after")
    def _beside_its_null(self) -> Self:
        if (self.null is None) == (self.without_null is None):
            raise ValueError("a row has a null, or a word on why it has none")
        if self.judged and self.p_value is None and (self.null is None or self.interval is None):
            raise ValueError("a row that is judged has a p-value, or an interval and a null")
        return self

    @model_validator(mode="after")
    def _within_its_bounds(self) -> Self:
        if self.interval is not None:
            Estimated(value=self.value, low=self.interval[0], high=self.interval[1])
        baseline = () if self.baseline is None else (self.baseline.low, self.baseline.high)
        given = [self.value, self.null, self.ceiling, *(self.interval or ()), *baseline]
        numbers = [number for number in given if number is not None]
        if self.false_alarms is not None and self.unit != SHARE:
            raise ValueError("false alarms belong to a share of members that were found")
        if self.unit == SHARE and not all(-_SLACK <= number <= 1 + _SLACK for number in numbers):
            raise ValueError("a share is at least 0 and less than or equal to 1")
        if self.ceiling is not None and max(numbers) > self.ceiling * (1 + math.copysign(_SLACK, self.ceiling)):
            raise ValueError("no number of a row is above its ceiling")
        return self


class Term(Facts):
    """A word of the glossary."""

    word: Text
    meaning: Text


class AttackFacts(Facts):
    """What one attack found.

    Args:
        name: of the attack; part of identifiers of the page.
        title: its heading.
        public: whether it read public text and keyed secrets only. If not, it is for the curator alone.
        subject: what a model gives away.
        counted: what one test is called, in the singular.
        introduction: sentences.
        note: how to read the rows.
        terms: words that it needs.
        rows: the released model's first; none where nothing could be measured.
        undecided: why not.
    """

    name: Annotated[str, StringConstraints(pattern=r"^[a-z][a-z0-9-]{0,40}$")]
    title: Text
    public: bool
    subject: Text
    counted: Text
    introduction: tuple[Text, ...] = ()
    note: Note = ""
    terms: tuple[Term, ...] = ()
    rows: tuple[AttackRow, ...] = ()
    undecided: Text | None = None

    @property
    def control(self) -> str | None:
        """The positive control, where rows of one are shown."""
        return next((row.model for row in self.rows if row.model != RELEASED), None)

    def tests_of(self, model: str) -> dict[str, bool]:
        """Whether the model stands out in each test, by the test's name.

        A p-value is corrected twice (Bonferroni): for the rows of the test, and for the tests of the model.
        """
        rows = [row for row in self.rows if row.model == model and row.judged]
        joint = self.joint_p_values(model)
        tests = dict.fromkeys(row.test for row in rows)
        level = SIGNIFICANT / len(tests) if tests else SIGNIFICANT
        return {
            test: joint[test] < level if test in joint else any(row.above_chance for row in rows if row.test == test)
            for test in tests
        }

    def joint_p_values(self, model: str) -> dict[str, float]:
        """The p-value of each test of a model: of its rows the smallest one, as many times as there are rows."""
        own: dict[str, list[float]] = {}
        for row in self.rows:
            if row.model == model and row.judged and row.p_value is not None:
                own.setdefault(row.test, []).append(row.p_value)
        return {test: min(1.0, len(values) * min(values)) for test, values in own.items()}

    @model_validator(mode="after")
    def _either(self) -> Self:
        if bool(self.rows) == (self.undecided is not None):
            raise ValueError("the attack has rows, or a word on why it has none")
        return self

    @model_validator(mode="after")
    def _rows_are_told_apart(self) -> Self:
        told = [(row.model, row.name) for row in self.rows]
        if len(told) != len(set(told)):
            raise ValueError("two rows of an attack have the same name and model")
        models = [row.model for row in self.rows]
        if models != sorted(models, key=lambda model: model != RELEASED):
            raise ValueError("the rows of the released model come first")
        if len({*models} - {RELEASED}) > 1:
            raise ValueError("an attack has one control")
        return self


SIGNIFICANT = 0.05
"""The p-value below which a test stands out, before the correction for several of them."""
