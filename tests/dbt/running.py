"""dbt in a process of its own, as users run it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
SUITE = ROOT / "tests" / "dbt" / "suite"
ADAPTER = ROOT / "shared" / "dbt-alluvia"
INSTALLED = Path(sys.prefix) / "dbt"
_END = "\0"
_RUN = f"""
import shlex, sys
from dbt.cli.main import dbtRunner

for command in sys.argv[2:]:
    done = dbtRunner().invoke(["--no-use-colors", *shlex.split(command), "--profiles-dir", sys.argv[1]])
    print(done.exception or "", done.success, sep="\\n", end={_END!r}, flush=True)
"""


class Ran(NamedTuple):
    """Whether a command of dbt succeeded, and what it printed, with single spaces."""

    ok: bool
    said: str


def with_dbt(**more: str) -> dict[str, str]:
    """Return the environment of a process that has dbt and the adapter."""
    paths = os.pathsep.join(map(str, (INSTALLED, ADAPTER, ROOT)))
    return {**os.environ, "PYTHONPATH": paths, "DBT_SEND_ANONYMOUS_USAGE_STATS": "False", "NO_COLOR": "1", **more}


def dbt(project: Path, *commands: str) -> list[Ran]:
    """Run commands of dbt one after another in a project, whose folder has its profile, too. Nothing is asserted."""
    done = subprocess.run(
        [sys.executable, "-c", _RUN, str(project), *commands],
        cwd=project,
        env=with_dbt(),
        capture_output=True,
        text=True,
        check=True,
    )
    said = done.stdout.split(_END)[:-1]
    return [Ran(ok == "True", " ".join(text.split())) for text, _, ok in (each.rpartition("\n") for each in said)]
