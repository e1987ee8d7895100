"""Who may import whom (docs/adding.md): the imports are read from the source, and an upward one fails."""

from __future__ import annotations

import ast
import functools
import graphlib
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import tacit

ROOT = Path(tacit.__file__).parent

BASE = {
    "version",
    "errors",
    "failures",
    "randomness",
    "files",
    "strict_yaml",
    "progress",
    "by_name",
    "option_errors",
    "storage",
    "work",
}  # what every package may use
MAY_IMPORT: dict[str, set[str]] = {
    "version": set(),
    "errors": set(),
    "failures": set(),
    "randomness": {"errors"},
    "files": {"errors"},
    "strict_yaml": set(),
    "progress": set(),
    "by_name": set(),
    "option_errors": {"by_name"},
    "storage": {"errors"},
    "clipping": {"errors"},
    "work": {"errors", "files", "progress"},
    "config": {
        "errors",
        "by_name",
        "option_errors",
        "clipping",
        "files",
        "strict_yaml",
        "privacy",
        "corpus",
    },  # privacy: vocabulary_methods; corpus: names of formats
    "privacy": BASE,
    "corpus": BASE,
    "engine": BASE | {"clipping"},
    "screening": BASE | {"privacy", "corpus", "vocabulary", "engine"},  # vocabulary, engine: a detector may be a model
    "vocabulary": BASE | {"privacy", "corpus"},
    "models": BASE
    | {"engine", "config", "vocabulary", "privacy"},  # vocabulary: special tokens; privacy: the mark of a release
    "training": BASE | {"config", "privacy", "corpus", "engine", "vocabulary", "models"},
    "evaluation": BASE | {"engine", "models", "training", "corpus", "vocabulary"},  # the ids of special tokens
    # privacy, vocabulary: the audit of the vocabulary runs its mechanism, and compares with its law
    "audit": BASE | {"attack_stages", "config", "engine", "models", "training", "corpus", "privacy", "vocabulary"},
    "spark": BASE | {"runs", "corpus", "screening", "vocabulary", "training"},
    "scoring": BASE
    | {"config", "privacy", "corpus", "vocabulary", "engine", "models"},  # a scorer is a model from a folder
    "attack_stages": {"config"},  # for its types alone
    "screen_plan": {"config", "errors", "screening"},  # light: `tacit screen` needs no account
    # what a run is given (files of words, tokenizers, models, policies) is looked at before it begins
    "planning": BASE
    | {
        "attack_stages",
        "clipping",
        "config",
        "privacy",
        "corpus",
        "screening",
        "screen_plan",
        "vocabulary",
        "training",
    },
}
MAY_IMPORT["runs"] = BASE | {"config", "privacy"}
MAY_IMPORT["release"] = BASE | {"runs", "config", "privacy", "planning"}
MAY_IMPORT["loops"] = BASE | {"runs", "privacy", "engine", "models", "planning", "training", "release"}
MAY_IMPORT["entities"] = BASE | {
    "config",
    "runs",
    "release",
    "privacy",
    "corpus",
    "engine",
    "models",
    "vocabulary",
    "training",
    "evaluation",
    "planning",  # time and memory, and where a tuning begins
}
MAY_IMPORT["report"] = BASE | {"config", "runs", "privacy", "planning", "audit", "screen_plan"}
MAY_IMPORT["pipeline"] = {*MAY_IMPORT}
"""Only its `pages.py` and `result.py` ask for the report: `NARROWER`."""
MAY_IMPORT["reproduce"] = {*MAY_IMPORT} - {"report"}  # experiments are ordinary runs, some of them released
MAY_IMPORT["cli"] = {*MAY_IMPORT}
MAY_IMPORT["__main__"] = {"cli"}
TORCH = {
    "engine",
    "models",
    "training",
    "evaluation",
    "audit",
    "scoring",
    "pipeline",
    "reproduce",
    "cli",
    "entities",
    "loops",
}

TORCH_IN_FUNCTIONS = {
    "screening/adapters/huggingface.py",  # loaded when the adapter is used, and not before
    "clipping.py",  # never: for its types alone
}


NARROWER: dict[str, set[str]] = {
    "config/kinds/__init__.py": set(),
    "config/kinds/kind.py": set(),
    "pipeline/order.py": {"runs", "attack_stages"},
    "pipeline/records.py": {"config", "corpus", "randomness"},
    "pipeline/screening.py": BASE | {"config", "runs", "corpus", "screening", "screen_plan", "spark"},
    "pipeline/marking.py": BASE | {"config", "corpus", "screening", "vocabulary"},
    "pipeline/scoring.py": BASE | {"config", "runs", "corpus", "scoring"},
    "pipeline/rho.py": BASE | {"config", "runs", "corpus", "privacy", "scoring"},
    "pipeline/result.py": {"config", "files", "runs", "privacy", "report"},  # the verdict in the report's words
    "pipeline/attack_files.py": {"config", "files", "runs", "audit"},
    "pipeline/pages.py": BASE | {"config", "runs", "privacy", "audit", "release", "report"},
    "pipeline/membership.py": BASE | {"config", "corpus", "screening", "screen_plan", "audit"},
    "report/loss_plot.py": {"errors", "privacy"},  # of a mechanism, not of a run
    "planning/confidentiality.py": {"errors", "config", "privacy"},
    "planning/selective.py": {"config", "privacy"},  # the account of a run on marked text, for its plan and its report
    "planning/given.py": BASE | {"config", "screening", "vocabulary"},
    "planning/measured.py": BASE | {"config", "privacy", "screening", "screen_plan"},
    "planning/origins.py": BASE | {"config", "privacy", "corpus", "screening"},  # which files are read, by which models
}
"""Of files of a package: what else than their own package they may import."""
WITHOUT_TORCH = {path for path in NARROWER if path.startswith("pipeline/")}
REPORT = {"report"}


def may_import(path: Path) -> set[str]:
    """What a file may import beside its own package."""
    name, package = path.relative_to(ROOT).as_posix(), _package(path)
    if name in NARROWER:
        return NARROWER[name]
    if package == "report" and not name.startswith("report/collect/"):
        return {"errors"}  # the wall: what a page shows is in its schema, and nothing else reaches it
    if package == "config" and not name.startswith("config/vocabulary_methods/"):
        return MAY_IMPORT[package] - {"privacy"}
    return MAY_IMPORT[package] - (REPORT if package == "pipeline" else set())


def _package(path: Path) -> str:
    parts = path.relative_to(ROOT).parts
    return parts[0].removesuffix(".py")


@functools.cache
def nodes_of(source: str) -> list[ast.AST]:
    """All nodes of a source, the module first. Each source is parsed once, and many tests ask for it."""
    return list(ast.walk(ast.parse(source)))


@functools.cache
def source_of(path: Path) -> str:
    return path.read_text()


def body_of(source: str) -> list[ast.stmt]:
    """What stands at the top of a source."""
    module = nodes_of(source)[0]
    assert isinstance(module, ast.Module)
    return module.body


@functools.cache
def imports_of(source: str) -> frozenset[str]:
    """Full names of all imported modules, also inside functions."""
    found: set[str] = set()
    for node in nodes_of(source):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
            found.add(node.module)
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
    return frozenset(found)


def upward_imports(path: Path, source: str) -> set[str]:
    """Packages of tacit that this source may not import. `tacit` itself is for its users: it lies above what it offers."""
    inside = {name.split(".")[1] for name in imports_of(source) if name.startswith("tacit.")}
    itself = {"tacit"} & _plain_imports(source)
    return itself | ((inside & KNOWN) - {_package(path)} - may_import(path))


def _plain_imports(source: str) -> set[str]:
    """Modules that are imported as they are, or that names are taken from."""
    found: set[str] = set()
    for node in nodes_of(source):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
            found.add(node.module)
    return found


SOURCES = sorted(path for path in ROOT.rglob("*.py") if path != ROOT / "__init__.py")
KNOWN = {_package(path) for path in (*SOURCES, ROOT / "__init__.py")}


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(ROOT)))
def test_imports_go_down(path: Path) -> None:
    assert upward_imports(path, source_of(path)) == set()


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(ROOT)))
def test_torch_is_imported_only_where_tensors_are(path: Path) -> None:
    source = source_of(path)
    light = _package(path) not in TORCH or path.relative_to(ROOT).as_posix() in WITHOUT_TORCH
    if {name.split(".")[0] for name in imports_of(source)} & {"torch", "transformers"} and light:
        assert path.relative_to(ROOT).as_posix() in TORCH_IN_FUNCTIONS
        top = [ast.unparse(node) for node in body_of(source) if isinstance(node, ast.Import | ast.ImportFrom)]
        assert not {"torch", "transformers"} & {name.split(".")[0] for name in imports_of("\n".join(top))}


NAMED = re.compile(r"(?P<module>(?P<room>(?P<package>tacit|torch|transformers)(\.\w+)?)(\.\w+)*):\w+")
MAY_NAME = {
    "config/kinds/": {"tacit.models", "transformers"},
    "config/phases/": {"tacit.planning"},
    "training/plans.py": {"tacit.training"},
    "attack_stages.py": {"tacit.audit"},
    "pipeline/order.py": {"tacit.pipeline"},
}
"""What the rows of a registry may name as ``"module:name"``, to be imported when it is used."""
MAY_IMPORT_BY_NAME = {"config/base.py", "screening/wordlists/build.py"}  # the second: modules of faker


def hidden_imports(path: Path, source: str) -> set[str]:
    """Names of modules in strings, and imports by name, where these are not allowed: no import passes by the tests above."""
    nodes = nodes_of(source)
    constants = [node.value for node in nodes if isinstance(node, ast.Constant)]
    matches = [NAMED.fullmatch(value) for value in constants if isinstance(value, str)]
    rooms_named = {match["room"] if match["package"] == "tacit" else match["package"] for match in matches if match}
    name = path.relative_to(ROOT).as_posix()
    words = {node.attr for node in nodes if isinstance(node, ast.Attribute)}
    words |= {node.id for node in nodes if isinstance(node, ast.Name)}
    by_name = {"import_module", "__import__"} & words
    may_name = {room for rows, rooms in MAY_NAME.items() if name.startswith(rows) for room in rooms}
    return (by_name if name not in MAY_IMPORT_BY_NAME else set()) | (rooms_named - may_name)


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(ROOT)))
def test_no_import_hides_in_a_string(path: Path) -> None:
    assert hidden_imports(path, source_of(path)) == set()


@pytest.mark.parametrize(
    ("path", "source", "wrong"),
    [
        ("config/kinds/lstm.py", "network = 'tacit.models.lstm:LstmForCausalLM'", set()),
        ("config/kinds/gpt2.py", "network = 'transformers:GPT2LMHeadModel'", set()),
        ("config/kinds/lstm.py", "network = 'tacit.training.loop:run_phase'", {"tacit.training"}),
        ("config/model.py", "network = 'tacit.models.lstm:LstmForCausalLM'", {"tacit.models"}),
        ("planning/cost.py", "importlib.import_module(name)", {"import_module"}),
        ("config/base.py", "importlib.import_module(name)", set()),
        ("config/phases/dp.py", "made_by = 'tacit.planning.phases:dp_plan'", set()),
        ("config/phases/dp.py", "made_by = 'tacit.training.loop:run_phase'", {"tacit.training"}),
    ],
)
def test_a_hidden_import_is_caught(path: str, source: str, wrong: set[str]) -> None:
    assert (ROOT / path).exists()
    assert hidden_imports(ROOT / path, source) == wrong


@pytest.mark.parametrize(
    ("path", "source", "wrong"),
    [
        ("privacy/events/base.py", "from tacit.training.loop import run_phase", {"training"}),
        ("config/run.py", "from tacit.privacy.events import Event", {"privacy"}),
        ("config/vocabulary_methods/hoory.py", "from tacit.privacy.events import Event", set()),
        ("config/vocabulary_methods/hoory.py", "from tacit.vocabulary.count import count_words", {"vocabulary"}),
        ("corpus/units.py", "def f():\n    import tacit.vocabulary.count", {"vocabulary"}),
        ("pipeline/training.py", "from tacit.report.build import build_report", {"report"}),
        ("pipeline/evaluation.py", "def f():\n    from tacit.report.collect import report_data", {"report"}),
        ("pipeline/release.py", "from tacit.report.build import build_report", {"report"}),
        ("pipeline/pages.py", "from tacit.report.build import build_report", set()),
        ("pipeline/pages.py", "from tacit.models.adapters import save_adapter", {"models"}),
        ("report/plots.py", "from tacit.privacy.ledger import Ledger", {"privacy"}),
        ("report/collect/ledger.py", "from tacit.privacy.ledger import Ledger", set()),
        ("pipeline/screening.py", "from tacit.planning import solve", {"planning"}),
        ("planning/confidentiality.py", "from tacit.corpus.units import Unit", {"corpus"}),
        ("planning/origins.py", "from tacit.corpus.units import Unit", set()),
        ("planning/measured.py", "import tacit", {"tacit"}),
        ("planning/measured.py", "from tacit import planning", {"tacit"}),
    ],
)
def test_an_upward_import_is_caught(path: str, source: str, wrong: set[str]) -> None:
    assert (ROOT / path).exists()
    assert upward_imports(ROOT / path, source) == wrong


READS_THE_PRIVATE_CORPUS = {
    "pipeline/corpus.py",  # the owner; the three below are its parts
    "pipeline/records.py",
    "pipeline/screening.py",
    "pipeline/on_spark.py",
    "pipeline/own_members.py",  # a file of somebody's own is read as the private corpus is
    "planning/corpora.py",  # whether a first record can be read
    "planning/origins.py",  # whether a public file is a private one
    "cli/overlap.py",  # for the curator alone, without a run
    "cli/screen.py",
}
"""Who is given ``config.private``, to open its files. All else asks the owner, so that all see one division of the corpus."""


_PRIVATE = r"(\w+\.)*(config|run)\.private"


def opens_the_private_corpus(source: str) -> bool:
    """Whether ``config.private`` (or ``run.private``, of a configuration) is given to a call, kept under another name, yielded or
    returned to who opens it, or asked for its path.
    """
    return any(re.fullmatch(_PRIVATE, ast.unparse(one)) for node in nodes_of(source) for one in _handed_on(node))


def _handed_on(node: ast.AST) -> Iterator[ast.expr]:
    """The expressions whose value leaves this one: what is read of it in place, such as ``.is_chat``, does not."""
    match node:
        case ast.Call():
            values: list[ast.expr | None] = [*node.args, *(keyword.value for keyword in node.keywords)]
        case ast.Yield() | ast.Return() | ast.Assign() | ast.AnnAssign() | ast.NamedExpr():
            values = [node.value]
        case ast.Attribute(attr="path" | "resolved_path" | "source"):
            values = [node.value]
        case _:
            values = []
    for value in values:
        if value is not None:
            yield from value.elts if isinstance(value, ast.Tuple | ast.List) else [value]


def test_the_private_corpus_has_one_owner() -> None:
    found = {path.relative_to(ROOT).as_posix() for path in SOURCES if opens_the_private_corpus(source_of(path))}
    assert found == READS_THE_PRIVATE_CORPUS


@pytest.mark.parametrize(
    ("source", "opens"),
    [
        ("units = group_units(read_records(source_of(state.config.private)), kind)", True),
        ("records = Corpus(source_of(run.private))", True),
        ("yield 'private.path', config.private", True),
        ("records = read_records(config.private.source)", True),
        ("text = Path(config.private.resolved_path).read_text()", True),
        ("mine = config.private", True),
        ("records = read(source=state.config.private)", True),
        ("def corpus(run): return run.private", True),
        ("is_chat = config.private.is_chat", False),
        ("folder = state.folder.private / 'stores'", False),
    ],
)
def test_a_reader_more_is_caught(source: str, opens: bool) -> None:
    assert opens_the_private_corpus(source) == opens


MOST_FLOORS = 12


def rooms() -> dict[str, set[str]]:
    """Which rooms (packages, and modules beside them) each room imports, also inside functions; ``tacit`` itself is one."""
    found: dict[str, set[str]] = {"tacit": set()}
    for path in ROOT.rglob("*.py"):
        room = "tacit" if path == ROOT / "__init__.py" else _package(path)
        names = {name.split(".")[1] for name in imports_of(source_of(path)) if name.startswith("tacit.")}
        found.setdefault(room, set()).update(names - {room})
    return {room: asked & found.keys() for room, asked in found.items()}


def floors(asked: dict[str, set[str]]) -> int:
    """How many rooms the longest way down passes. A circle raises `graphlib.CycleError`."""
    floor: dict[str, int] = {}
    for room in graphlib.TopologicalSorter(asked).static_order():
        floor[room] = 1 + max((floor[below] for below in asked[room]), default=0)
    return max(floor.values())


def test_the_house_has_few_floors_and_no_circle() -> None:
    """A floor more means that order is hidden in imports."""
    assert floors(rooms()) <= MOST_FLOORS


def test_a_circle_and_a_floor_too_many_are_caught() -> None:
    asked = rooms()
    assert floors(asked | {"attic": {"__main__"}}) == 1 + floors(asked | {"attic": {"cli"}})
    with pytest.raises(graphlib.CycleError):
        floors(asked | {"privacy": {*asked["privacy"], "pipeline"}})


def test_files_with_rules_of_their_own_exist() -> None:
    assert all((ROOT / path).is_file() for path in NARROWER)


@pytest.mark.parametrize("arguments", [["--help"], ["accountant", "epsilon", "--help"]])
def test_light_commands_start_without_torch(arguments: list[str]) -> None:
    code = (
        "import sys\nfrom tacit.cli.main import app\n"
        f"try:\n    app({arguments!r})\nexcept SystemExit:\n    pass\n"
        "assert not {'torch', 'transformers', 'dp_accounting', 'matplotlib'} & set(sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_all_names_the_public_names() -> None:
    """``__all__`` of every module that has one lists names that exist."""
    for path in SOURCES:
        body = body_of(source_of(path))
        defined = {node.name for node in body if isinstance(node, ast.FunctionDef | ast.ClassDef)}
        for node in body:
            if isinstance(node, ast.Assign):
                defined |= {target.id for target in node.targets if isinstance(target, ast.Name)}
            elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
                defined.add(node.target.id)
            elif isinstance(node, ast.ImportFrom | ast.Import):
                defined |= {alias.asname or alias.name for alias in node.names}
        for node in body:
            if isinstance(node, ast.Assign) and any(
                isinstance(t, ast.Name) and t.id == "__all__" for t in node.targets
            ):
                assert set(ast.literal_eval(node.value)) <= defined, path
