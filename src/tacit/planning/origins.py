"""Where a run begins: everything that it is given is looked at (`tacit.privacy.origin`), and what was spent on it is counted.

No private text is read, and no weights: `tacit plan` looks too.
"""

from __future__ import annotations

import hashlib
import json
import posixpath
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tacit.config import RunConfig
from tacit.config.corpus import CorpusOptions
from tacit.corpus.places import Place, RemotePath
from tacit.corpus.source import files_of
from tacit.errors import RefusedError, TacitError, UsageError
from tacit.files import real_path
from tacit.privacy.events import Spend
from tacit.privacy.ledger import Ledger
from tacit.privacy.origin import Origin, origin_of, released_model
from tacit.privacy.provenance import PUBLIC, START, Given, Provenance, merged
from tacit.privacy.refused_starts import check_composition, refuse_own_key

__all__ = ["provenance_of", "take_over", "together"]


def provenance_of(config: RunConfig) -> Provenance:
    """Where a run begins, checked.

    Raises:
        RefusedError: something is neither certified nor declared public, or its spends do not compose with the run's.
        DataError: a certificate is damaged, or of other files.
        UsageError: the private corpus itself is named as something public.
    """
    _refuse_private_as_public(config)
    origins = [_origin(thing, "heuristic:unknown-start" in config.allow) for thing in _things(config)]
    found = together(origins, config.same_people)
    if found.inherited:
        _refuse_readers_of_rho_and_masks(config)
    check_composition(
        found,
        config.privacy.unit_name,
        config.privacy.relation,
        config.privacy.budget.delta,
        config.uses_heuristic,
        "privacy.",
    )
    return found


def _origin(thing: _Thing, allow_unknown: bool) -> Origin:
    if isinstance(thing.path, Path):
        return origin_of(thing.role, thing.path, thing.option, thing.declared, thing.digest, allow_unknown, thing.files)
    _refuse_remote_run(thing.path, thing.option)
    return Origin(Given(thing.role, thing.digest, PUBLIC))  # a corpus: nothing else may lie there


def _refuse_remote_run(where: RemotePath, option: str) -> None:
    """What lies in a run or beside a certificate is looked at here, file by file; a store that says nothing holds neither."""
    beside = [folder / "certificate.json" for folder in (where, where.parent)]
    for mark in (*beside, *(folder / "ledger.sqlite" for folder in where.parents), *_marks_below(where)):
        if _is_there(mark):
            raise RefusedError(
                "start-inside-a-run",
                f"{option}: {where} lies in a run or a release of tacit ({mark}); copy all of that here, and name its release/model",
            )


def _marks_below(where: RemotePath) -> list[RemotePath]:
    try:
        names = where.files(below=True)
    except TacitError:
        return []
    return [where / name for name in names if posixpath.basename(name) in ("certificate.json", "ledger.sqlite")]


def _is_there(mark: RemotePath) -> bool:
    try:
        return mark.is_file()
    except TacitError:
        return False


def take_over(ledger: Ledger, start: Provenance, inherited: Mapping[str, Spend]) -> None:
    """Put into the ledger where its run begins, and what was spent before on people who may be the same, by stage.

    Raises:
        RefusedError: ``two-releases-of-one-key``: a release behind it has the ledger's own key.
    """
    refuse_own_key(start.ancestors, ledger.header.key_commitment)
    ledger.bind(START, json.dumps(start.to_dict(), sort_keys=True))
    for stage, spend in inherited.items():
        ledger.inherit(stage, spend)


def _refuse_private_as_public(config: RunConfig) -> None:
    """One file cannot be both; that other files hold none of the private text is for the user to know."""
    private, read = _identity(config.private.resolved_path), _files_read(config.private)
    for thing in _things(config):
        if _identity(thing.path) == private or _identity(thing.path) in read:
            raise _public_and_private(thing.option)
    for number, corpus in enumerate(config.public):
        if read & _files_read(corpus):
            raise _public_and_private(f"public.{number}.path")


def _public_and_private(option: str) -> UsageError:
    return UsageError(f"{option} is the private corpus: what is public is read without noise; give another file")


def _files_read(corpus: CorpusOptions) -> set[Hashable]:
    """What the files of a corpus are, whatever folder, pattern or link names them; nothing is read."""
    return set(map(_identity, _files_of(corpus)))


def _files_of(corpus: CorpusOptions) -> Sequence[Place]:
    try:
        return files_of(corpus.source)
    except TacitError:  # there is none; whoever reads it says so
        return ()


def _identity(where: Place) -> Hashable:
    """What a file or folder is, by whatever name."""
    if isinstance(where, RemotePath):
        return where.identity
    if not where.is_file():
        return real_path(where)
    found = where.stat()
    return found.st_dev, found.st_ino


def together(origins: Iterable[Origin], same_people: bool) -> Provenance:
    """All that was given, with the releases behind it, each once."""
    origins = list(origins)
    return Provenance(
        given=(
            *(origin.given for origin in origins),
            *_distinct(given for origin in origins for given in origin.behind),
        ),
        ancestors=merged(ancestor for origin in origins for ancestor in origin.ancestors),
        same_people=same_people,
    )


def _distinct(given: Iterable[Given]) -> tuple[Given, ...]:
    return tuple(dict.fromkeys(given))


def _refuse_readers_of_rho_and_masks(config: RunConfig) -> None:
    """Bands, masks and marks are to be functions of the record and of public things; what an earlier release chose is neither."""
    if config.adaptive is not None and config.adaptive.form != "literal":
        raise RefusedError(
            "scorer-not-public",
            "adaptive: what this run starts from has read private text of the same people, and scores or tokenizes what decides how "
            "well each unit is protected; start from a public model, or say same_people: false if nobody is in both texts",
        )
    if config.screening is not None or config.marking is not None:
        section = "screening" if config.screening is not None else "marking"
        raise RefusedError(
            "start-with-screening",
            f"{section}: what this run starts from has read private text of the same people, of which the account of "
            "secrets knows nothing; start from a public model, or say same_people: false if nobody is in both texts",
        )


@dataclass(frozen=True)
class _Thing:
    """Something that a run is given.

    Args:
        role: as the ledger calls it.
        option: of the configuration that names it, for errors.
        declared: whether the configuration says that it is public.
        digest: of its files, where the ledger binds them.
        files: of this machine that are read of it, wherever they lie.
    """

    role: str
    path: Place
    option: str
    declared: bool
    digest: str | None = None
    files: tuple[Path, ...] = ()


def _things(config: RunConfig) -> Iterator[_Thing]:
    model, vocabulary = config.model, config.vocabulary
    digests: dict[str, str] = {}
    if model.folder is not None or vocabulary.how.brings_tokenizer:
        from tacit.planning.given import fingerprints  # `tokenizers` comes with it, which other plans do not need

        digests = fingerprints(config)
    if model.folder is not None:
        role = "the model folder"
        yield _Thing(role, model.resolved_folder, "model.folder", model.public, digests[role])
    if vocabulary.how.brings_tokenizer:
        role = "the given tokenizer"
        declared = vocabulary.public or (model.public and vocabulary.path == model.folder)
        yield _Thing(role, vocabulary.resolved_path, "vocabulary.path", declared, digests[role])
    for number, path in enumerate(vocabulary.public_word_paths):
        yield _Thing(f"public word list {number + 1}", path, "vocabulary.public_words", True, _digest(path))
    if config.adaptive is not None and config.adaptive.scorer.folder is not None:
        from tacit.planning.given import scorer_digest

        scorer = config.adaptive.scorer
        place = released_model(scorer.resolved_folder)
        yield _Thing("the scorer", place, "adaptive.scorer.folder", scorer.public, scorer_digest(place))
    yield from _models_of_policies(config)
    for number, corpus in enumerate(config.public):
        option, files = f"public.{number}.path", tuple(one for one in _files_of(corpus) if isinstance(one, Path))
        yield _Thing(f"public corpus {number + 1}", corpus.resolved_path, option, True, files=files)


def _models_of_policies(config: RunConfig) -> Iterator[_Thing]:
    """What marks secrets is a function of the record alone only if no private text made it."""
    stated = {
        "screening.balanced": config.screening and config.screening.policy_paths["balanced"],
        "screening.conservative": config.screening and config.screening.policy_paths["conservative"],
        "marking.balanced": config.marking and config.marking.policy_path,
    }
    for option, policy in stated.items():
        if policy:
            from tacit.screening.adapters.contents import contents_digest, model_place
            from tacit.screening.policy import PolicyOptions, load_policy_options

            options = load_policy_options(policy)
            detectors = options.detectors if isinstance(options, PolicyOptions) else ()  # of tokens: words and patterns
            for number, detector in enumerate(detectors):
                place, model = model_place(detector), detector.named_model()
                if model is not None and model.value is not None:
                    role = f"the model of detector {number + 1} of {option}"
                    named = f"{option}: detectors.{number}.{model.option}"
                    if place is None and not model.value.startswith(
                        "blank:"
                    ):  # spaCy's name of a pipeline that has no model
                        raise UsageError(f"{named}: {model.value} is no folder and no package that is installed here")
                    if place is not None:
                        yield _Thing(role, place, named, model.public, contents_digest(detector))


def _digest(path: Path) -> str | None:
    return hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else None
