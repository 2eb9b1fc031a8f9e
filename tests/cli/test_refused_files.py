"""Files that are refused, in processes as users start them: exit 1, one line on standard error, and nothing stored."""

from __future__ import annotations

import gzip
import json
import subprocess
import sys
from pathlib import Path

import pytest

import alluvia
from tests.cli.terminals import environment

COLUMNS = {"a": "long", "b": "double", **{f"c{n}": "long" for n in range(30)}}
HEADER = ",".join(COLUMNS)
ROW = "{n},{n}.5," + ",".join(["{n}"] * 30)
ROWS = 40_000
"""Of over one block of Arrow's reader, which reads ahead in threads of its own."""
LATE = "row 40001, column a: expected a number (long), got a string (it has 'x')"
WATCHED = """
import atexit, json, os, sys
told, words = sys.argv[1], sys.argv[2:]
def tell():
    tasks = [open(f"/proc/self/task/{each}/comm").read().strip() for each in os.listdir("/proc/self/task")]
    with open(told, "w") as file:
        json.dump({"reads_csv": "pyarrow._csv" in sys.modules, "threads": tasks}, file)
atexit.register(tell)
from alluvia.cli.command_line import cli
cli(words, "alluvia")
"""
"""Runs the command, and writes to a file how its process was at the end."""

OF_THE_ALLOCATOR = "jemalloc_bg_thd"
"""A thread of Arrow's memory pool, which calls nothing of Python. All others but the first are a library's or ours."""

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("files")
    good = "\n".join([HEADER, *(ROW.format(n=n) for n in range(ROWS))]) + "\n"
    late = good + ROW.format(n=1).replace("1", "x", 1) + "\n"
    (folder / "late.csv").write_text(late)
    with gzip.open(folder / "late.csv.gz", "wt", compresslevel=1) as packed:
        packed.write(late)
    (folder / "quote.csv").write_text(good + '"1,2\n')
    (folder / "short.csv").write_text(good + "1,2\n")
    (folder / "early.csv").write_text(good.replace("0,0.5", "x,0.5", 1))
    (folder / "late.ndjson").write_text('{"a": 1}\n' * ROWS + '{"a": "x"}\n')
    return folder


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["upload", "t", "late.csv"], LATE),
        (["upload", "t", "late.csv", "--key", "k"], LATE),
        (["upload", "t", "late.csv.gz"], LATE),
        (["upload", "t", "-", "--format", "csv"], LATE),
        (["upload", "t", "early.csv"], "row 1, column a: expected a number (long), got a string (it has 'x')"),
        (["upload", "t", "quote.csv"], "row 40001: not valid CSV: a quote is not closed"),
        (["upload", "t", "short.csv"], "row 40001: Expected 32 columns, got 2: 1,2"),
        (["upload", "t", "late.ndjson"], "row 40001, column a: expected a number (long), got a string"),
        (["upload", "new", "late.csv", "--schema", ",".join(map(":".join, COLUMNS.items()))], LATE),
        (["upload", "new", "quote.csv"], "row 40001: not valid CSV: a quote is not closed"),
        (["upsert", "t", "late.csv", "--on", "a"], f"late.csv: {LATE}"),
        (["upsert", "t", "short.csv", "--on", "a"], "short.csv: row 40001: Expected 32 columns, got 2: 1,2"),
    ],
    ids=lambda each: " ".join(each)[:40] if isinstance(each, list) else "",
)
def test_a_refused_file_is_one_line_and_exit_1(files: Path, tmp_path: Path, words: list[str], reason: str) -> None:
    """No thread of a library may outlive the interpreter: it could end the process by a signal after the error."""
    lake = alluvia.connect(tmp_path)
    lake.create_table("t", COLUMNS)
    told = tmp_path / "told.json"
    with (files / "late.csv").open("rb") as late:
        done = subprocess.run(
            [sys.executable, "-c", WATCHED, str(told), words[0], "--lake", str(tmp_path), *words[1:]],
            cwd=files,
            env=environment(),
            stdin=late if "-" in words else subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )
    assert (done.returncode, done.stdout, done.stderr) == (1, "", f"alluvia: {reason}\n")
    at_the_end = json.loads(told.read_text())
    assert not at_the_end["reads_csv"], "Arrow reads CSV in the process of the command"
    assert len([name for name in at_the_end["threads"] if name != OF_THE_ALLOCATOR]) == 1, at_the_end
    assert lake["t"].count() == 0
    assert lake.tables() == ["t"]
