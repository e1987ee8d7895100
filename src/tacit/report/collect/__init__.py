"""The facts of a run's report, from the ledger, the certificate and released values: what a reader may know.

No input is private: the vocabulary's number of released words, the noisy evaluation and the exposure of keyed
canaries under the released model are all functions of ledger entries. The control without DP and the membership attack are passed in
for the curator's copy alone, and `tacit.report.schema.ReportData` refuses them elsewhere.
"""

from tacit.report.collect.run import report_data

__all__ = ["report_data"]
