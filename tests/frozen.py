"""Imported last by the server of `tests.started`: what was imported there is garbage in no process that it forks.

And what libraries make once in a process, whatever they are asked, is made here: the tables of transformers' renamed weights, and the
code of the report's templates, a sixth of a small run.
"""

import atexit
import gc

from transformers.conversion_mapping import get_checkpoint_conversion_mapping

from tacit.report import build

get_checkpoint_conversion_mapping("bert")
for name in ("report.html.j2", "card.md.j2"):
    build._template(name)
gc.freeze()
gc.set_threshold(50_000, 20, 20)  # as in tests/conftest.py
atexit.register(gc.unfreeze)  # or libraries in C++ complain of what they see left at the end
