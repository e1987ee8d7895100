"""Entity extraction: a BIO classifier on a BERT, its windows, its entity-level F1, and trivial baselines."""
