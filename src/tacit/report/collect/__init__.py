"""The facts of a run's report, from the ledger, the certificate and released values: what a reader may know.

What is shown to the public is a function of ledger entries: the vocabulary's number of released words, the noisy evaluation and
what public attacks find in the released model. The control without DP and the attacks that read private text are shown in the
curator's copy alone, and `tacit.report.schema.ReportData` refuses them elsewhere.
"""

from tacit.report.collect.run import report_data

__all__ = ["report_data"]
