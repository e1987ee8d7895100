"""No test's outcome hangs on what the operating system draws: the guard, and that it works."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

import tacit.randomness
from tacit.randomness import load_or_create_key

from .draws import drawn_bytes, install, who_asks
from .keys import begin_with_key, key_numbered
from .small import small_values
from .started import called

TESTS = Path(__file__).parent

# Files whose own way to start `tacit` is their point; the key that is drawn there, if there is one, cannot change what they assert.
STARTS_TACIT = {
    "cli/test_init_cli.py": "a terminal of its own; nothing that it starts draws a key",
    "cli/test_sign_cli.py": "a terminal of its own; the key that it signs with is given, and nothing is drawn",
    "packaging/test_wheel.py": "the installed wheel; nothing of what it asserts hangs on a key",
    "cli/test_screen_cli.py": "standard streams that are closed; tells copies apart, whatever the key",
    "test_draws.py": "this list",
    "test_plan_look.py": "a plan without a configuration, which has no key",
    "training/test_torchrun.py": "copies a folder that was opened first, key and all",
}
OPENDP = {
    "test_pipeline.py": "without noise",
    "vocabulary/test_select.py": "the law of the noise itself: p-values below 1e-6 only",
    "vocabulary/test_wordpiece.py": "without noise",
    "test_vocabulary_run.py": "400 units show a name with probability 4e-7; planted words by p-values below 1e-6",
}


def silent_draws(source: str) -> list[str]:
    """Calls that draw from the operating system, or from a generator without a seed."""
    found: list[str] = []
    for node in ast.walk(ast.parse(source)):
        if not isinstance(node, ast.Call):
            continue
        name = ast.unparse(node.func)
        seeded = bool(node.args or node.keywords)
        if re.fullmatch(r"(np\.random\.|numpy\.random\.)?default_rng|(random\.)?Random", name) and not seeded:
            found.append(name)
        if re.match(r"secrets\.|os\.urandom|random\.(?!Random|seed)[a-z]+$|np\.random\.(?!default_rng)[a-z]", name):
            found.append(name)
        if name.endswith("SystemRandom"):
            found.append(name)
    return found


@pytest.mark.parametrize(
    "wrong",
    ["secrets.token_bytes(32)", "os.urandom(8)", "np.random.default_rng()", "random.Random()", "random.random()",
     "np.random.normal(3)", "random.shuffle(x)", "random.SystemRandom()"],
)  # fmt: skip
def test_the_guard_finds_draws(wrong: str) -> None:
    assert silent_draws(f"x = [{wrong}]")
    assert silent_draws("np.random.default_rng(3); random.Random(3).random(); generator.random(5)") == []


@pytest.mark.slow
def test_no_test_draws_silently() -> None:
    found = {str(path.relative_to(TESTS)): silent_draws(path.read_text()) for path in TESTS.rglob("*.py")}
    assert {name: draws for name, draws in found.items() if draws} == {}


@pytest.mark.parametrize(
    ("pattern", "listed"), [(r"tacit\.cli\.main\"|\"-m\", \"tacit\"", STARTS_TACIT), (r"\bdraw_noise\(", OPENDP)]
)
def test_what_the_guard_cannot_reach_is_listed_with_its_reason(pattern: str, listed: dict[str, str]) -> None:
    holds = {str(path.relative_to(TESTS)) for path in TESTS.rglob("*.py") if re.search(pattern, path.read_text())}
    assert holds - {"test_draws.py"} <= listed.keys()


def test_a_drawn_key_is_that_of_who_asks(tmp_path: Path) -> None:
    one, other = load_or_create_key(tmp_path / "one"), load_or_create_key(tmp_path / "other")
    here = "test_draws.py:test_a_drawn_key_is_that_of_who_asks < test_a_drawn_key_is_that_of_who_asks"
    assert one == drawn_bytes(f"{here} 1", 32)
    assert other == drawn_bytes(f"{here} 2", 32)
    assert who_asks() == f"{here} 3"


@pytest.mark.os_randomness("two draws of 256 bits are equal with a probability of 2^-256")
def test_a_marked_test_draws(tmp_path: Path) -> None:
    key = load_or_create_key(tmp_path / "key")
    here = "test_draws.py:test_a_marked_test_draws < test_a_marked_test_draws"
    assert key not in {drawn_bytes(f"{here} {number}", 32) for number in range(1, 9)}
    assert tacit.randomness.secrets.token_bytes(32) != tacit.randomness.secrets.token_bytes(32)


def draw_for_somebody(path: str) -> None:
    install("somebody")
    print(load_or_create_key(Path(path)).hex())


def test_a_process_of_a_test_has_the_key_of_who_asks(tmp_path: Path) -> None:
    """The mechanism of `tests.started.command` without a whole command."""
    done = called(draw_for_somebody, str(tmp_path / "key"))
    here = "somebody < test_draws.py:draw_for_somebody"
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.strip() == drawn_bytes(f"{here} 1", 32).hex()


def test_a_run_is_begun_with_the_key_of_a_test(tmp_path: Path) -> None:
    streams = begin_with_key(small_values(tmp_path), 7)
    path = tmp_path / "run" / "private" / "key"
    assert load_or_create_key(path) == key_numbered(7)
    assert path.stat().st_mode & 0o777 == 0o600
    assert streams.commitment() != begin_with_key(small_values(tmp_path, run=str(tmp_path / "other")), 8).commitment()
