"""Attacks on a running `tacit`: kills, full and read-only disks, clocks, memory, rivals, damaged input, and a sentinel.

`make hostile` runs all of them, for hours, and writes docs/reliability.md; `python -m hostile --help` says how to run a part.
Never in CI.

    hostile/__main__.py     the driver: which attacks, how many, from which seed; goes on where it stopped
    hostile/attack.py       what an attack is: rows, trials, a control that must be caught; and what a trial comes to
    hostile/results.py      trials on disk, one line each, and their sums
    hostile/page.py         the page made of them
    hostile/children.py     starts of the command as forks of this process, with a clock, a limit, or a kill
    hostile/cases.py        the kinds of runs, as small as they get; starts.py: begun runs that all end alike
    hostile/endings.py      whether two finished runs are alike, bit for bit
    hostile/families.py     ATTACKS, one line an attack, one module each: kills, disks, readonly, clocks, memory, rivals, corpora,
                            configurations, folders, sentinel
"""
