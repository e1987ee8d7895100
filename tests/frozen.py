"""Imported last by the server of `tests.started`: what was imported there is garbage in no process that it forks."""

import atexit
import gc

gc.freeze()
gc.set_threshold(50_000, 20, 20)  # as in tests/conftest.py
atexit.register(gc.unfreeze)  # or libraries in C++ complain of what they see left at the end
