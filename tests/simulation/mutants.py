"""`python -m tests.simulation.mutants`: break the code on purpose, and see that the tests notice every time.

Each mutant is a change of text in a copy of the library; `mutant_lists` has them by the part of the library. The
simulation hunts a mutant over seeds. If the simulation cannot see it by its nature, the tests named with it do.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path

import alluvia
from tests.simulation.mutant_lists import (
    appends,
    catalog,
    commit,
    delta,
    erasure,
    events,
    merges,
    pipelines,
    references,
    retention,
    transactions,
)
from tests.simulation.mutant_lists.mutant import Mutant
from tests.simulation.seeds import say

PACKAGE = Path(alluvia.__file__).parent
ROOT = Path(__file__).parents[2]
SEEDS = 2000
PATIENCE_SECONDS = 1500

MUTANTS: tuple[Mutant, ...] = (
    *appends.MUTANTS,
    *catalog.MUTANTS,
    *commit.MUTANTS,
    *delta.MUTANTS,
    *erasure.MUTANTS,
    *events.MUTANTS,
    *merges.MUTANTS,
    *pipelines.MUTANTS,
    *references.MUTANTS,
    *retention.MUTANTS,
    *transactions.MUTANTS,
)


def mutated(mutant: Mutant, folder: Path) -> None:
    """Put a copy of the library, and of what it has for Spark, with a mutant's change into a folder."""
    for package in (PACKAGE, PACKAGE.parent / "alluvia_spark"):
        shutil.copytree(package, folder / package.name, ignore=shutil.ignore_patterns("__pycache__"))
    file = folder / PACKAGE.name / mutant.file
    text = file.read_text()
    if text.count(mutant.old) != 1:
        message = f"{mutant.name}: its text stands {text.count(mutant.old)} times in {mutant.file}"
        raise ValueError(message)
    file.write_text(text.replace(mutant.old, mutant.new))


def hunt(mutant: Mutant, seeds: int) -> tuple[bool, str]:
    """Let the tests at a mutant. Returns whether they noticed, and how."""
    with tempfile.TemporaryDirectory(prefix="alluvia-mutant-") as name:
        mutated(mutant, Path(name))
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join((name, str(ROOT)))}
        command = [sys.executable, "-m", "pytest", "-x", "-p", "no:cacheprovider", *mutant.tests]
        if not mutant.tests:
            command = [sys.executable, "-m", "tests.simulation.hunt", str(seeds), "--first", str(mutant.seed)]
        done = subprocess.run(
            command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=PATIENCE_SECONDS, check=False
        )
    lines = [line for line in done.stdout.splitlines() if line.startswith(("seed ", "FAILED ", "no seed "))]
    if not mutant.tests and done.returncode == 1 and lines and fails_whole(int(lines[0].split()[1])):
        return False, f"the library fails without the mutant too: {lines[0]}"
    return done.returncode == 1 and bool(lines), lines[0] if lines else done.stdout[-300:] + done.stderr[-300:]


@cache
def fails_whole(seed: int) -> bool:
    """Whether the simulation fails at a seed with the library as it is: what it notices there is no mutant."""
    command = [sys.executable, "-m", "tests.simulation.hunt", "0", "--first", str(seed)]
    return subprocess.run(command, cwd=ROOT, capture_output=True, timeout=PATIENCE_SECONDS, check=False).returncode != 0


def main(arguments: Sequence[str] | None = None) -> int:
    """Hunt the mutants whose names hold a word; 1 if one lives."""
    parser = argparse.ArgumentParser(prog="mutants")
    parser.add_argument("--seeds", type=int, default=SEEDS)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("word", nargs="?", default="")
    given = parser.parse_args(arguments)
    wanted = [mutant for mutant in MUTANTS if given.word in mutant.name]

    def one(mutant: Mutant) -> tuple[Mutant, bool, str, float]:
        began = time.monotonic()
        caught, how = hunt(mutant, given.seeds)
        return mutant, caught, how, time.monotonic() - began

    living = 0
    with ThreadPoolExecutor(given.workers) as pool:
        for mutant, caught, how, took in pool.map(one, wanted):
            living += not caught
            say(f"{'caught' if caught else 'LIVES '} {mutant.name}: {how[:200]} ({took:.0f} s)")
    say(f"{len(wanted) - living} of {len(wanted)} mutants caught")
    return 1 if living else 0


if __name__ == "__main__":
    sys.exit(main())
