"""A run from text to report. Its order is a list: `tacit.pipeline.stages.stages`, which `tacit run` walks.

    opening     folder, lock, key, configuration check, ledger with every private stage planned
    state       what the stages share; corpus: the one owner of the texts, rows: of the rows of token ids
    event_file  how far it is, for machines: public numbers alone
    stages      their order, and how they are walked; result: what a finished run guarantees

    screening   the private corpus, redacted and split (confidentially redacted training)
    vocabulary  DP histogram -> WordPiece -> tokenizer
    training    `pretraining` (public phases), `training` (the rest), `control` (the same without DP, for the audit)
    scoring     how surprising a public model finds the texts; rho: of the units (adaptive DP)
    evaluation  held-out text: public exactly, private through a mechanism
    attacks     a stage an attack of `tacit.audit.attacks.ATTACKS`: `audit` (exposure of the planted canaries) and `membership` (the
                attack on the corpus itself, whose texts are in membership.py)
    release     run/release as a whole, and `report`, the curator's copy

records.py reads the private corpus's files, and marking.py says what of a text is private.

Every stage leaves its result in the run folder, so running the same command again goes on where it stopped. Only
`tacit.release.writing` writes to run/release; everything else stays in run/private (mode 0700).

Under torchrun rank 0 does all of this, and the other ranks `assist` it in the training phases (docs/distributed.md).
"""
