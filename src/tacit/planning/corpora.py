"""A look at the corpora in the first second, before any noise is solved: are the files there, and have they the named fields.

Of each corpus one record is parsed and dropped. No text is kept or shown, nothing is counted, and nothing of it decides a number.
"""

from __future__ import annotations

from collections.abc import Iterator

from tacit.config import CorpusOptions, RunConfig
from tacit.corpus.readers import read_records
from tacit.corpus.source import files_of
from tacit.errors import DataError

__all__ = ["check_corpora", "missing_corpora"]


def missing_corpora(config: RunConfig) -> tuple[str, ...]:
    """A sentence for each corpus whose files are not on this machine; those that are there are looked at.

    Raises:
        DataError: a named field is not in a corpus, or its first record is damaged.
        UsageError: a format without fields is asked for one.
    """
    found = []
    for option, corpus in _corpora(config):
        try:
            files_of(corpus.source)
        except DataError as error:
            found.append(f"{option}: {error}. The plan stands, and `tacit run` needs the files")
        else:
            next(read_records(corpus.source))
    return tuple(found)


def check_corpora(config: RunConfig) -> None:
    """Refuse, before anything takes time, corpora that cannot be read from the start.

    Raises:
        DataError, UsageError: as `missing_corpora`; also where files are missing.
    """
    for _, corpus in _corpora(config):
        next(read_records(corpus.source))


def _corpora(config: RunConfig) -> Iterator[tuple[str, CorpusOptions]]:
    yield "private.path", config.private
    for number, corpus in enumerate(config.public):
        yield f"public.{number}.path", corpus
