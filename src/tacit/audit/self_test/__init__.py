"""`tacit audit --self-test`: the engine is broken on purpose, and the audit must find each break and accuse nothing else.

model.py      a table of words, and the canaries whose gradients are the worst case
training.py   a training, seen from inside: the engine's steps or broken ones
games.py      coins, trainings and scores
breaks/       a break a file: the wrong steps, and the audit that is to find them
simulated.py  audits of mechanisms whose privacy is known exactly
run.py        all of it, and what it found

The breaks are here and not in the engine: no option of the engine makes it wrong.
"""
