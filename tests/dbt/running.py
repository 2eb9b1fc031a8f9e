"""dbt in a process of its own, as users have it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple, Protocol

ROOT = Path(__file__).parents[2]
SUITE = ROOT / "tests" / "dbt" / "suite"
ADAPTER = ROOT / "shared" / "dbt-alluvia"
INSTALLED = Path(sys.prefix) / "dbt"
_END = "\0"
_RUN = f"""
import json, os, shlex, sys
from dbt.cli.main import dbtRunner

for line in sys.stdin:
    project, command = json.loads(line)
    os.chdir(project)
    done = dbtRunner().invoke(["--no-use-colors", *shlex.split(command), "--profiles-dir", project])
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


class Dbt(Protocol):
    """Runs commands of dbt one after another in a project, whose folder has its profile, too. Nothing is asserted."""

    def __call__(self, project: Path, *commands: str) -> list[Ran]: ...


@contextmanager
def running_dbt() -> Iterator[Dbt]:
    """Start dbt once, for any number of projects: that takes longer than most commands."""
    with subprocess.Popen(
        [sys.executable, "-c", _RUN], env=with_dbt(), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        asked, said = process.stdin, process.stdout

        def run(project: Path, command: str) -> Ran:
            print(json.dumps([str(project), command]), file=asked, flush=True)
            text = ""
            while not text.endswith(_END):
                more = said.read(1)
                assert more, f"dbt has ended: {text}"
                text += more
            printed, _, ok = text.removesuffix(_END).rpartition("\n")
            return Ran(ok == "True", " ".join(printed.split()))

        yield lambda project, *commands: [run(project, each) for each in commands]
