"""All facts of a run's report."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from tacit.audit.attack import Found
from tacit.config import RunConfig
from tacit.config.shape import ModelShape
from tacit.privacy.ledger import Ledger
from tacit.privacy.provenance import BEGUN
from tacit.report import schema
from tacit.report.collect.adaptive import adaptive_facts
from tacit.report.collect.attacks import attack_facts
from tacit.report.collect.curve import proved_curve, whose_epsilons
from tacit.report.collect.guarantee import confidentiality_lines, guarantee, missed_shares
from tacit.report.collect.identifiers import identifier_rows
from tacit.report.collect.ledger import cumulative, ledger_rows
from tacit.report.collect.training import model_facts, phase_rows, vocabulary_facts
from tacit.report.collect.utility import examples, utility_rows
from tacit.runs.folder import RunFolder
from tacit.version import VERSION

__all__ = ["report_data"]


def report_data(
    config: RunConfig,
    folder: RunFolder,
    ledger: Ledger,
    certificate: dict[str, Any],
    found: Mapping[str, Found],
    evaluation: dict[str, Any],
    shape: ModelShape,
    trained: int,
    released_words: int,
    curator: bool,
) -> schema.ReportData:
    """The facts of one run, for whoever has the release, or for the curator.

    Args:
        found: by attack what it measured (run/private); what of it this reader may see is decided here.
        evaluation: run/private/evaluation.json.
        shape: of the released model.
        trained: parameters of an adapter; of no adapter it does not matter.
        released_words: of the vocabulary.
        curator: whether this is the curator's copy.
    """
    header, size = ledger.header, evaluation["vocabulary_size"]
    return schema.ReportData(
        title=config.title,
        tacit_version=VERSION,
        begun=ledger.bound(BEGUN),
        run_name=folder.root.name,
        config_digest=header.config_digest,
        ledger_head=certificate["ledger_head"],
        guarantee=guarantee(config, certificate),
        ledger=ledger_rows(ledger),
        cumulative=cumulative(ledger),
        attacks=attack_facts(config, found, curator),
        utility=utility_rows(config, evaluation, curator),
        examples=examples(evaluation),
        vocabulary=vocabulary_facts(config, ledger, size, released_words),
        model=model_facts(config, shape, size, trained),
        phases=phase_rows(config, ledger),
        files=tuple(schema.ReleasedFile(path=path, sha256=digest) for path, digest in certificate["files"].items()),
        budget_epsilon=None if math.isinf(header.epsilon) else header.epsilon,
        curator_copy=curator,
        confidentiality=confidentiality_lines(certificate),
        missed_shares=missed_shares(certificate),
        adaptive=adaptive_facts(config, ledger, certificate),
        curve=proved_curve(ledger, certificate),
        whose=whose_epsilons(config, ledger, certificate),
        identifiers=identifier_rows(config),
    )
