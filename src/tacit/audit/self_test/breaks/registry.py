"""The breaks, by name: `BREAKS`. A new one is one file and one line."""

from __future__ import annotations

from tacit.audit.self_test.breaks.batch_mean import BATCH_MEAN
from tacit.audit.self_test.breaks.fixed_batches import FIXED_BATCHES
from tacit.audit.self_test.breaks.kind import Break
from tacit.audit.self_test.breaks.no_clipping import NO_CLIPPING
from tacit.audit.self_test.breaks.no_cross_term import NO_CROSS_TERM
from tacit.audit.self_test.breaks.noise_by_micro_batch import NOISE_BY_MICRO_BATCH
from tacit.audit.self_test.breaks.quarter_of_the_noise import QUARTER_OF_THE_NOISE

__all__ = ["BREAKS"]

BREAKS: dict[str, Break] = {
    "no-clipping": NO_CLIPPING,
    "quarter-of-the-noise": QUARTER_OF_THE_NOISE,
    "batch-mean": BATCH_MEAN,
    "noise-by-micro-batch": NOISE_BY_MICRO_BATCH,
    "fixed-batches": FIXED_BATCHES,
    "no-cross-term": NO_CROSS_TERM,
}
