"""Detectors made of other people's work: Presidio, spaCy, a local Hugging Face model, spans computed elsewhere.

A policy file names them by their options (options.py); `detector_from_options` (registry.py) makes the detector. None of them
reaches for the network, and none of the libraries is imported before its detector is made: options and registry cost only pydantic.
"""
