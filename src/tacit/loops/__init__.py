"""A training loop of one's own that pays in a ledger (docs/own-loop.md).

folder.py      the loop's folder: lock, plan, ledger; steps are paid here
steps.py       PrivateSteps: draw, clip, noise and payment from one plan
certifying.py  from a finished loop and the user's model files to a release with a certificate
"""
