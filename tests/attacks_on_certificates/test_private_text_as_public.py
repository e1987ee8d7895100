"""The private corpus was named as a public one too, by another name.

That both are one file was seen where the two paths were equal, and not where the public one was the folder that the private file lies
in, a pattern that matches it, or a hard link to it. Then all of it was read without noise: with one user more, whose note held a
word that nobody else wrote, that word was whole in the released vocabulary, and without that user it was not. Delta is 1 at every
epsilon; the certificate said 8.997 at 1e-4, and `tacit verify` that it holds.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from tacit.config import parse_config
from tacit.errors import UsageError
from tacit.planning.origins import provenance_of

from ..small import small_values, write_corpora


def values(folder: Path, private: Path, public: Path) -> dict[str, Any]:
    found = small_values(folder)
    found["private"]["path"] = str(private)
    found["public"] = [*found["public"], {"path": str(public), "id_field": "id"}]
    return found


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """With private notes in ``private/notes.jsonl``, and in ``public.jsonl`` what is public."""
    write_corpora(tmp_path, patients=20, records=30)
    (tmp_path / "private").mkdir()
    (tmp_path / "notes.jsonl").rename(tmp_path / "private" / "notes.jsonl")
    return tmp_path


def test_by_whatever_name_it_is_refused(folder: Path) -> None:
    notes = folder / "private" / "notes.jsonl"
    os.link(notes, folder / "hard.jsonl")
    (folder / "soft.jsonl").symlink_to(notes)
    (folder / "loop").symlink_to(folder / "private")
    names = {
        "the file": (notes, notes),
        "its folder": (notes, folder / "private"),
        "a link to its folder": (notes, folder / "loop"),
        "a pattern": (notes, folder / "private" / "note?.jsonl"),
        "a hard link": (notes, folder / "hard.jsonl"),
        "a link": (notes, folder / "soft.jsonl"),
        "a file in the private folder": (folder / "private", notes),
        "a pattern for both": (folder / "private" / "*.jsonl", notes),
    }
    refused = []
    for name, (private, public) in names.items():
        with pytest.raises(UsageError, match=r"public\.1\.path is the private corpus"):
            provenance_of(parse_config(values(folder, private, public)))
        refused.append(name)
    assert refused == list(names)  # it was the first and the last but two


def test_a_folder_of_other_files_is_public(folder: Path) -> None:
    (folder / "more").mkdir()
    (folder / "public.jsonl").rename(folder / "more" / "public.jsonl")
    found = small_values(folder)
    found["private"]["path"] = str(folder / "private" / "notes.jsonl")
    found["public"] = [{"path": str(folder / "more"), "id_field": "id"}]
    assert [given.role for given in provenance_of(parse_config(found)).given] == ["public corpus 1"]
