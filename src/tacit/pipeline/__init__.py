"""A run from text to report: each stage is a function of the run's state, and `tacit.pipeline.release.run` is all of them in order.

    open_run   folder, lock, key, configuration check, ledger with every private stage planned (opening.py)
    vocabulary DP histogram -> WordPiece -> tokenizer (vocabulary.py)
    train      the phases, then (when asked) the control without DP (training.py)
    evaluate   held-out text: public exactly, private through a mechanism (evaluation.py)
    audit      exposure of the planted canaries; membership: the attack on the corpus itself (attacks.py)
    report     run/release as a whole (release.py)

What they share is in state.py, which asks for the private corpus (corpus.py), screened (screening.py), marked (marking.py) or scored
(scoring.py: the texts, rho.py: the units), and for the texts of the membership attack (membership.py).

Every stage looks first for its own finished output, so running the same command again continues where it stopped. Only
`tacit.pipeline.release` writes to run/release; everything else stays in run/private (mode 0700).

Under torchrun the first process does all of this, and the others `assist` it in the training phases (docs/distributed.md).
"""
