"""The corpora of a run on Spark, where ``compute.runner`` says so; None where they are read on this machine."""

from __future__ import annotations

from tacit.corpus.units import UnitKind
from tacit.pipeline.records import source_of, unit_kind
from tacit.pipeline.state import RunState, once
from tacit.spark.corpus import CorpusPart, SparkCorpus
from tacit.spark.runner import Runner
from tacit.spark.session import open_session, spark_folder

__all__ = ["PUBLIC_HELD_OUT", "private_on_spark", "public_on_spark"]

PUBLIC_HELD_OUT = 0.02
"""The share of public records that is kept from training."""


@once
def _runner(state: RunState) -> Runner:
    return Runner(open_session(spark_folder(state.folder), state.config.compute.workers))


@once
def private_on_spark(state: RunState) -> SparkCorpus | None:
    """The private corpus as its files have it; None also where it is screened, for what is left then lies on this machine."""
    config = state.config
    if config.compute.runner != "spark" or config.screening is not None:
        return None
    part = CorpusPart(source_of(config.private), unit_kind(config), is_chat=config.private.is_chat)
    return SparkCorpus(lambda: _runner(state), [part], config.evaluation.held_out, state.streams.child("corpus"))


@once
def public_on_spark(state: RunState) -> SparkCorpus | None:
    """The public corpora."""
    if state.config.compute.runner != "spark":
        return None
    parts = [
        CorpusPart(source_of(options), UnitKind("record"), f"{number}:", options.is_chat, options.times)
        for number, options in enumerate(state.config.public)
    ]
    return SparkCorpus(lambda: _runner(state), parts, PUBLIC_HELD_OUT, state.streams.child("public corpus"))
