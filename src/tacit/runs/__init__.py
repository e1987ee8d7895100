"""What every run has, of whichever kind: its folder, its beginning, where its ledger lies, and the walk through its stages."""
