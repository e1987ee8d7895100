"""The plan of a run, from the configuration alone: every mechanism with its noise, and what it will cost.

Nothing here reads data or imports torch. `make_plan` solves the noise that is not given so that the joint epsilon meets the
budget; the pipeline executes exactly these frozen events.

vocabulary.py, phases.py, evaluation.py   each private part: its event and noise, and how `tacit plan` shows it
adaptive.py     noise and weights by privacy probability: given, or solved for a budget of each band
mechanisms.py   all parts together: solved, declared in the ledger, read back from it
corpora.py      are the files there, and have they the named fields
plan.py         the plan as `tacit plan` shows it
stages.py       the names of the stages, and their prices
finetuning.py   of a fine-tuning: its phase, the noise solved for the joint budget
finetuning_origin.py, finetuning_facts.py   whom it is about, and what its model guarantees, in words
cost.py         operations, seconds, memory; duration.py: time of all that a run does
usefulness.py   warnings: what is legal and of no use
advice.py       which budget to state
text.py         the plan in words, for a window or a notebook
"""

from tacit.planning.cost import disk_bytes
from tacit.planning.mechanisms import Mechanisms, mechanisms_from_ledger, plan_in_ledger, solve
from tacit.planning.plan import RunPlan, make_plan, plan_and_look
from tacit.planning.stages import (
    EVALUATION,
    HELD_OUT,
    PUBLIC_KEY,
    TRAINING,
    VOCABULARY,
    VOCABULARY_COUNTS,
    Stage,
    vocabulary_round,
)
from tacit.planning.vocabulary import vocabulary_size

__all__ = [
    "EVALUATION",
    "HELD_OUT",
    "PUBLIC_KEY",
    "TRAINING",
    "VOCABULARY",
    "VOCABULARY_COUNTS",
    "Mechanisms",
    "RunPlan",
    "Stage",
    "disk_bytes",
    "make_plan",
    "mechanisms_from_ledger",
    "plan_and_look",
    "plan_in_ledger",
    "solve",
    "vocabulary_round",
    "vocabulary_size",
]
