"""Imported last by the server of `tests.started`: what was imported there is garbage in no process that it forks."""

import atexit
import gc

gc.freeze()
atexit.register(gc.unfreeze)  # or libraries in C++ complain of what they see left at the end
