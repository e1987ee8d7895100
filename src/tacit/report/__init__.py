"""The report of one run: HTML for people, JSON for programs, a model card for the model hub."""
