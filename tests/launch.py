"""`python tests/launch.py WHO ARGUMENTS...` is `tacit ARGUMENTS...`, with the key that `tests.draws` gives to WHO."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

if __name__ == "__main__":
    sys.path.pop(0)  # the folder of the tests, whose names others may have
    spec = importlib.util.spec_from_file_location("draws", Path(__file__).with_name("draws.py"))
    assert spec is not None
    assert spec.loader is not None
    draws = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(draws)
    if sys.argv[1]:
        draws.install(sys.argv[1])
    sys.argv[:2] = ["tacit"]
    from tacit.cli.main import main

    main()
