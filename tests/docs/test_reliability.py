"""The page on reliability says what the tests are."""

from __future__ import annotations

import re
from pathlib import Path

from tests.faults.attempts import KINDS
from tests.processes.test_chaos import SECONDS
from tests.simulation.mutants import MUTANTS
from tests.simulation.test_simulation import PORTION_SEEDS, PORTIONS

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "RELIABILITY.md").read_text()


def test_the_numbers_are_those_of_the_tests() -> None:
    assert {int(found) for found in re.findall(r"(\d+) ways", PAGE)} == {len(MUTANTS)}
    assert f"{PORTIONS * PORTION_SEEDS:,} seeds" in PAGE
    assert "every operation on five kinds of tables" in PAGE
    assert len(KINDS) == 5
    assert f"{SECONDS:g} s each" in PAGE


def test_what_is_to_be_run_again_exists() -> None:
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    assert {"chaos", "deep", "mutants", "simulate"} <= set(re.findall(r"`make ([a-z]+)", PAGE)) <= targets
    paths = re.findall(r"`pytest ([\w/.]+)`", PAGE)
    assert "tests/faults" in paths
    assert [path for path in paths if not (ROOT / path).exists()] == []


def test_nothing_is_left_to_fill_in() -> None:
    words = re.findall(r"\b[A-Z]{5,}\b", re.sub(r"`[^`]*`|\([A-Z]+\.md\)", "", PAGE))
    assert set(words) <= {"SIGKILL", "SIGSTOP"}
