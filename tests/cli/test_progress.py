"""Progress, on real terminals: what is shown, and where nothing may be."""

from __future__ import annotations

import fcntl
import json
import os
import re
import struct
import subprocess
import sys
import termios
from itertools import accumulate
from pathlib import Path

import pytest

import alluvia
from alluvia.cli.terminal.progress import _line, _State
from alluvia.progress import report, reporting_to
from tests.cli.terminals import COMMAND, environment, read_all, through_pipe

SHOW_ONE = """
import sys
from alluvia.cli.terminal.progress import progress
from alluvia.cli.terminal.terminal import tell
from alluvia.progress import report
with progress("starting", as_json=False, after_seconds=0):
    report("merging \\x1b[31mclicks", 30, 120, "files")
    sys.stdin.readline()
"""


HIDDEN = "\x1b[?25l"
WIPED = "\r\n\r\x1b[1A\x1b[2K"
"""What removes a line of progress for good."""


def wait_for(reader: int, text: str) -> str:
    """Read what a terminal gets until a text is in it."""
    shown = ""
    while text not in shown:
        data = os.read(reader, 1 << 16).decode()
        assert data, shown
        shown += data
    return shown


def test_a_share_a_rate_and_the_time_left_then_no_trace() -> None:
    reader, terminal = os.openpty()
    process = subprocess.Popen(
        [sys.executable, "-c", SHOW_ONE], env=environment(), stdin=subprocess.PIPE, stderr=terminal
    )
    os.close(terminal)
    shown = wait_for(reader, "s left")
    assert r"merging \x1b[31mclicks: 25% of 120 files, " in shown
    assert "files/s, " in shown
    process.communicate(b"\n")
    shown += read_all(reader)
    os.close(reader)
    assert process.returncode == 0
    assert shown.endswith(WIPED)
    assert HIDDEN not in shown  # a process that is killed could not show the cursor again


def test_what_is_told_meanwhile_gets_lines_of_its_own() -> None:
    reader, terminal = os.openpty()
    program = SHOW_ONE.replace("sys.stdin.readline()", "sys.stdin.readline(); tell('[red]a note[/red]')")
    process = subprocess.Popen(
        [sys.executable, "-c", program], env=environment(), stdin=subprocess.PIPE, stderr=terminal
    )
    os.close(terminal)
    shown = wait_for(reader, "s left")
    process.communicate(b"\n")
    shown += read_all(reader)
    os.close(reader)
    assert "\r\x1b[2K[red]a note[/red]\r\n" in shown


@pytest.mark.parametrize(("columns", "line"), [(80, "25% of 120 files, "), (30, "merging \\x1b[31mclicks: 25%")])
def test_progress_keeps_to_one_line(columns: int, line: str) -> None:
    reader, terminal = os.openpty()
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    process = subprocess.Popen(
        [sys.executable, "-c", SHOW_ONE], env=environment(), stdin=subprocess.PIPE, stdout=terminal, stderr=terminal
    )
    os.close(terminal)
    shown = wait_for(reader, line)
    process.communicate(b"\n")
    shown += read_all(reader)
    os.close(reader)
    lines = re.sub("\x1b\\[[0-9;]*[mAK]", "", shown.removesuffix(WIPED)).split("\r")
    assert max(map(len, lines)) <= columns
    assert ("━" in shown) is (columns == 80)


@pytest.mark.parametrize(
    ("state", "seconds", "line"),
    [
        (_State("a", 30, 120, "files", 0, 0), 10, "a: 25% of 120 files, 3 files/s, 30 s left"),
        (_State("a", 1 << 20, 1 << 30, "bytes", 0, 0), 1, "a: 0% of 1.0 GB, 1.0 MB/s, 17 min 3 s left"),
        (_State("a", 500, 0, "events", 0, 0), 3661, "a: 500 events, 0 events/s, 1 h 1 min 1 s"),
        (_State("a", 0, 9, "files", 0, 0), 2, "a: 0% of 9 files, 2 s"),
        (_State("a", 0, 0, "", 0, 0), 2, "a: 2 s"),
        (_State("a", 9, 9, "files", 2, 0), 11, "a: 100% of 9 files, 1 files/s, 11 s"),
    ],
)
def test_lines(state: _State, seconds: float, line: str) -> None:
    assert _line(state, seconds) == line


def ingest_from_a_pipe(lake: Path, *more: str) -> tuple[subprocess.Popen[bytes], int]:
    """Start an ingest that waits for events, with its errors on a terminal."""
    reader, terminal = os.openpty()
    command = [*COMMAND, "ingest", "t", "-", "--lake", str(lake), *more]
    process = subprocess.Popen(
        command, env=environment(), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=terminal
    )
    os.close(terminal)
    return process, reader


def test_work_over_a_second_shows_progress(tmp_path: Path) -> None:
    process, reader = ingest_from_a_pipe(tmp_path)
    shown = wait_for(reader, "ingesting -: ")
    out, _ = process.communicate(b'{"event":"a"}\n')
    shown += read_all(reader)
    os.close(reader)
    assert process.returncode == 0
    counts = ["accepted", "stored", "duplicates", "rejected", "conflicting"]
    assert out.decode().splitlines()[0].split() == ["file", *counts, "version"]
    assert shown.endswith(WIPED)


def test_none_with_json_and_none_in_pipes(tmp_path: Path) -> None:
    process, reader = ingest_from_a_pipe(tmp_path, "--json")
    out, _ = process.communicate(b'{"event":"a"}\n')
    assert json.loads(out)["accepted"] == 1
    assert read_all(reader) == ""
    os.close(reader)
    for words in (["optimize"], ["verify", "t", "--full"], ["tables"]):
        assert through_pipe([*words, "--lake", str(tmp_path)]).stderr == b""


def test_merge_and_changes_of_rows_report_how_far_they_are(tmp_path: Path) -> None:
    table = alluvia.connect(str(tmp_path)).create_table("t", {"day": "string", "n": "long"}, partition_by=["day"])
    for n in range(2):
        table.append([{"day": day, "n": n} for day in "abc"])
    told: list[tuple[str, int, int, str]] = []

    def listen(what: str, done: int, total: int, unit: str = "") -> None:
        told.append((what, done, total, unit))

    sizes = {file.partition_values["day"]: 0 for file in table.snapshot().files}
    for file in table.snapshot().files:
        sizes[file.partition_values["day"]] += file.size
    with reporting_to(listen):
        table.optimize()
    total = sum(sizes.values())
    done = list(accumulate(sorted(sizes.values()), initial=0))
    assert told == [("optimizing t", each, total, "bytes") for each in done]
    told.clear()
    with reporting_to(listen):
        table.delete("n = 0")
    assert told == [("changing t", each, 3, "files") for each in range(3)]
    told.clear()
    report("nobody listens", 1, 2)
    assert told == []
