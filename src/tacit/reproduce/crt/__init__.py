"""The experiments of Zhao, Li and Wang 2022 (confidentially redacted training): figures 2 to 6."""
