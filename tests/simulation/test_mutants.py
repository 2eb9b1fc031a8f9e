"""The mutants of `make mutants` fit the code, and the simulation catches some of them at once."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.simulation import mutants
from tests.simulation.mutant_lists.mutant import Mutant
from tests.simulation.mutants import MUTANTS, PACKAGE, hunt, mutated


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_a_mutant_changes_the_code(mutant: Mutant) -> None:
    text = (PACKAGE / mutant.file).read_text()
    assert text.count(mutant.old) == 1
    compile(text.replace(mutant.old, mutant.new), mutant.file, "exec")


def test_there_are_enough() -> None:
    names = {mutant.name for mutant in MUTANTS}
    assert len(names) == len(MUTANTS) >= 20


def test_a_mutant_whose_text_is_gone_is_named(tmp_path: Path) -> None:
    lost = Mutant("lost", "clock.py", "no such text", "")
    with pytest.raises(ValueError, match="lost: its text stands 0 times"):
        mutated(lost, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["forget the winners' ids after a lost race", "forget the sort"])
def test_a_mutant_is_caught(name: str) -> None:
    mutant = next(each for each in MUTANTS if each.name == name)
    caught, how = hunt(mutant, 40)
    assert caught, how


@pytest.mark.slow
def test_a_seed_at_which_the_code_itself_fails_catches_no_mutant(monkeypatch: pytest.MonkeyPatch) -> None:
    assert not mutants.fails_whole(4)
    monkeypatch.setattr(mutants, "fails_whole", lambda _: True)
    mutant = next(each for each in MUTANTS if each.name == "forget the winners' ids after a lost race")
    caught, how = hunt(mutant, 40)
    assert not caught
    assert how.startswith("the library fails without the mutant too: seed ")


def test_the_code_itself_is_not_caught() -> None:
    same = Mutant("nothing", "clock.py", "class Clock(ABC):", "class Clock(ABC):")
    caught, how = hunt(same, 2)
    assert not caught
    assert how == "no seed of 2 fails"
