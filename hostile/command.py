"""`tacit` with the clock that HOSTILE_CLOCK says, for processes that a launcher starts: ``python -m hostile.command run CONFIG``."""

from __future__ import annotations

import os

from hostile.clocks import show_clock


def main() -> None:
    """The command, as the console script starts it."""
    from tacit.cli.main import main as tacit_main

    show_clock(float(os.environ["HOSTILE_CLOCK"]))
    tacit_main()


if __name__ == "__main__":
    main()
