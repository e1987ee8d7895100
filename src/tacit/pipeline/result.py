"""What a finished run guarantees, in one paragraph and two numbers."""

from __future__ import annotations

import html
import math
from typing import Any

from tacit.config import TupleUnit
from tacit.files import quoted
from tacit.privacy.certificate_file import read_certificate
from tacit.privacy.rounded import upper
from tacit.privacy.strict_json import read_number
from tacit.report.collect.guarantee import confidentiality_lines, missed_shares
from tacit.report.prose import confidentiality_verdict
from tacit.runs.folder import RunFolder

__all__ = ["RunResult"]


class RunResult:
    """A finished run: where it is, and what it guarantees."""

    def __init__(self, folder: RunFolder) -> None:
        self.folder = folder
        self.certificate: dict[str, Any] = read_certificate(folder.certificate)

    @property
    def epsilon(self) -> float:
        """The certified epsilon at ``delta``."""
        return read_number(self.certificate["epsilons"][0]["epsilon"])

    @property
    def delta(self) -> float:
        """The certified delta."""
        return float(self.certificate["epsilons"][0]["delta"])

    def _repr_html_(self) -> str:
        """The statement, which a notebook shows."""
        return f"<p>{html.escape(self.statement)}</p>"

    @property
    def statement(self) -> str:
        """One paragraph: what is guaranteed, for whom, and where the report is."""
        unit, pieces = self.certificate["unit"], self.folder.load_config().privacy.unit
        cut = f" A {unit} is {pieces.description}." if isinstance(pieces, TupleUnit) else ""
        report = self.folder.release / "report.html"
        if "confidentiality" in self.certificate:
            lines, shares = confidentiality_lines(self.certificate), missed_shares(self.certificate)
            said = confidentiality_verdict(lines, shares)
            return (
                f"{said.headline}. {said.paragraph} `tacit confidentiality {quoted(self.folder.root)}` says all of it. The report is "
                f"{report}."
            )
        if self.certificate["status"] != "proved":
            return (
                "No guarantee: a heuristic was allowed, so epsilon is infinite. Treat the released files as you would treat the "
                f"private text itself. The report is {report}."
            )
        change = "added to or removed from" if self.certificate["relation"] == "add-or-remove" else "replaced in"
        even_odds = math.ceil(500 * (1 + float(self.certificate["total_variation"]))) / 10
        epsilon = upper(self.epsilon, ".2f")
        return (
            f"Guaranteed for every {unit} of the private text: when all that one {unit} wrote is {change} the corpus, the "
            f"probability of anything that can be seen in {self.folder.release} changes by at most a factor of "
            f"e^{epsilon}, give or take {upper(self.delta)} (differential privacy with epsilon {epsilon}). "
            f"Someone who gives even odds that a given {unit} is in the corpus guesses right at most {even_odds:.1f} % of "
            f"the time with the release in hand. It does not protect what several {unit}s have in common.{cut} "
            f"The report is {report}; `tacit verify {quoted(self.folder.root)}` recomputes the certificate."
        )
