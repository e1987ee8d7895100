"""Builds this package's two word lists: ``python -m tacit.screening.wordlists.build CORPUS...``.

common.txt holds the ordinary words of public text, most frequent first: words that are mostly written in lower case.
A name is written with a capital, so most names stay out. What was used here: the ELTeC novels (public domain), MedQuAD
and the clinical dialogues MTS-Dialog and ACI-Bench (CC BY 4.0), WikiText-2 (CC BY-SA), each read by
`tacit.corpus`; from them comes nothing but which words are common. names.txt holds the first and last names of all
locales of the package faker (MIT licence), which only this script needs.
"""

from __future__ import annotations

import argparse
import importlib
import pkgutil
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path

from tacit.corpus.readers import read_records
from tacit.corpus.source import Source

__all__ = ["common_words", "locale_names", "main"]

_FOLDER = Path(__file__).parent
_WORD = re.compile(r"[A-Za-z]+(?:'[a-z]+)?")
_LEAST_COUNT = 6
_LOWER_SHARE = 0.5
_NAME = re.compile(r"[^\W\d_]{2,}")


def common_words(corpora: Iterable[Iterable[str]], least_count: int = _LEAST_COUNT) -> list[str]:
    """Words that occur ``least_count`` times and in lower case in at least half of these; most frequent first.

    A corpus counts by its shares, so that a large one does not drown the others.
    """
    share: defaultdict[str, float] = defaultdict(float)
    lower: Counter[str] = Counter()
    total: Counter[str] = Counter()
    for texts in corpora:
        counts = Counter(word for text in texts for word in _WORD.findall(text))
        size = counts.total()
        for word, count in counts.items():
            total[word.lower()] += count
            share[word.lower()] += count / size
            lower[word.lower()] += count if word.islower() else 0
    kept = [word for word, count in total.items() if count >= least_count and lower[word] >= _LOWER_SHARE * count]
    return sorted(kept, key=lambda word: (-share[word], word))


def locale_names() -> set[str]:
    """First and last names of all locales of faker, in lower case; of a name of several words each word."""
    package = importlib.import_module("faker.providers.person")
    found: set[str] = set()
    for module in pkgutil.iter_modules(package.__path__):
        provider = importlib.import_module(f"faker.providers.person.{module.name}").Provider
        for name, values in vars(provider).items():
            if re.search("(first|last)_name", name) and isinstance(values, list | tuple | dict):
                found |= {word.lower() for value in values for word in _NAME.findall(str(value))}
    return found


def _texts(argument: str) -> Iterator[str]:
    path, _, field = argument.partition("=")
    for record in read_records(Source(Path(path), text_field=field or "text", max_record_bytes=100_000_000)):
        yield record.text


def main() -> None:
    """Write both lists beside this file."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("corpora", nargs="+", help="PATH or PATH=FIELD, as the readers of tacit.corpus take them")
    arguments = parser.parse_args()
    common = common_words(map(_texts, arguments.corpora))
    (_FOLDER / "common.txt").write_text("\n".join(common) + "\n", encoding="utf-8")
    names = sorted(locale_names())
    (_FOLDER / "names.txt").write_text("\n".join(names) + "\n", encoding="utf-8")
    print(f"{len(common)} common words, {len(names)} names")


if __name__ == "__main__":
    main()
