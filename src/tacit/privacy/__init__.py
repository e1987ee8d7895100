"""What was spent and what it means: events, accountants, the ledger, the certificate."""
