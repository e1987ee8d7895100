"""A training loop of one's own that pays in a ledger (docs/own-loop.md).

folder.py      the loop's folder: lock, plan, ledger; steps are paid here
steps.py       PrivateSteps: what is refused, the key, and a step after the other, each paid before it is drawn
step.py        one step: micro-batches, clip and noise
certifying.py  from a finished loop and the user's model files to a release with a certificate
"""
