"""What stays confidential of a secret in screened text (Zhao, Li and Wang 2022, corrected)."""
