"""Accountants, laws and noise for a budget: how much the events of a run cost together."""
