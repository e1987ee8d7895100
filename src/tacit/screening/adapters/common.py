"""What the adapters of other libraries share: each text is read alone, and one that the library cannot read is private as a whole.

An error there would let one text decide whether there is a release, and several texts at once would let each have a part in
what is found in the others, if only by rounding.
"""

from __future__ import annotations

from abc import abstractmethod

from tacit.errors import DataError, TacitError, UsageError
from tacit.failures import is_out_of_memory, is_panic
from tacit.files import is_utf8
from tacit.screening.spans import Detector, Span, unreadable

__all__ = ["TextByText", "UnreadableError", "missing"]

_PROBE = "Call Ann Smith in Oslo on 415-555-2671."


class UnreadableError(Exception):
    """A detector's word for a text of which it cannot tell all."""


class TextByText(Detector):
    """A detector that another library is behind."""

    def check(self) -> None:
        """Read a harmless text: a detector that cannot is refused before it sees any other.

        Raises:
            DataError: it cannot.
        """
        if self._try(_PROBE) is None:
            raise DataError(
                f"detector {self.name}: it cannot read a harmless text; see that its model is whole, that its tokenizer has a token "
                "for what it does not know, and that its device works"
            )

    def spans(self, text: str) -> list[Span]:
        """Spans in one text; of a text that cannot be read, all of it.

        Raises:
            DataError: as `check`, if it has come to that since.
        """
        if not is_utf8(text):  # libraries refuse half a surrogate pair in words that quote the text
            return unreadable(text, self.name)
        found = self._try(text)
        if found is not None:
            return found
        self.check()
        return unreadable(text, self.name)

    @abstractmethod
    def _spans(self, text: str) -> list[Span]:
        """Spans in one text, which is Unicode.

        Raises:
            UnreadableError: it cannot tell all of them; any other `Exception` of the library counts as this.
        """

    def _try(self, text: str) -> list[Span] | None:
        """The spans; None where the text cannot be read. Errors of the library may quote the text: none of them goes on."""
        try:
            found = self._spans(text)
            if any(not 0 <= span.start <= span.end <= len(text) for span in found):
                return None
            return [span for span in found if span.start < span.end]
        except BaseException as error:
            # a TimeoutError, which is an OSError, is that of an expression
            is_machines = isinstance(error, TacitError | OSError) and not isinstance(error, TimeoutError)
            if is_machines or is_out_of_memory(error):
                raise
            if not isinstance(error, Exception) and not is_panic(error):
                raise
        return None


def missing(kind: str, package: str, extra: str) -> UsageError:
    """The error of a library that is not installed."""
    return UsageError(f"detector {kind}: the package {package} is not installed; run: pip install 'tacit[{extra}]'")
