"""The commands of the guides to sources and to SQL, and of the guide of each kind, run and print what the pages say.

They run in one lake and one folder, in any order, as a user who tries one after another would run them.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from alluvia.events.sources.definition import Source
from alluvia.events.sources.kinds.registry import KINDS
from tests.serving import serving

DOCS = Path(__file__).parents[2] / "docs"
PAGES = [
    *(DOCS / f"{name}.md" for name in ("SOURCES", "SQL", "BACKUP", "UPKEEP")),
    *sorted((DOCS / "guides").glob("*.md")),
]
LOCAL = "localhost:8080"
"""Where the pages have a server; the test's is elsewhere."""
BLOCK = re.compile(r"^```(sh|text)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@pytest.mark.slow
@pytest.mark.timeout(1800)  # a hundred commands, of which three start Spark, take minutes on a busy machine
@pytest.mark.parametrize(
    "pages",
    [pytest.param(PAGES, id="in order"), pytest.param(PAGES[::-1], id="backwards", marks=pytest.mark.at_length)],
)
def test_the_commands_of_the_pages_in_one_lake(pages: list[Path], tmp_path: Path) -> None:
    """The server runs from the start, as that of a user who adds sources to it."""
    with serving(tmp_path / "lake", quiet=True) as (_, port):
        for page in pages:
            _check(page, port, tmp_path)


def _check(page: Path, port: int, folder: Path) -> None:
    found = BLOCK.findall(page.read_text())
    script = "".join(f"{text}echo ----\n" for kind, text in found if kind == "sh")
    done = _run(script.replace(LOCAL, f"127.0.0.1:{port}"), folder)
    assert done.returncode == 0, f"{page.name}: {done.stderr}"
    printed = iter(done.stdout.split("----\n"))
    output = ""
    for kind, text in found:
        if kind == "sh":
            output = next(printed)
        else:
            assert [line.rstrip() for line in output.splitlines()] == text.splitlines(), page.name


def _run(script: str, folder: Path) -> subprocess.CompletedProcess[str]:
    command = f'alluvia() {{ {shlex.quote(sys.executable)} -m alluvia.cli "$@"; }}\nexport -f alluvia\n{script}'
    return subprocess.run(
        ["bash", "-euc", command],
        env={
            **os.environ,
            "ALLUVIA_LAKE": "lake",
            "POWERTOOLS_LOG_LEVEL": "ERROR",
        },
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )


def test_the_guide_names_every_kind_and_setting() -> None:
    text = PAGES[0].read_text()
    rows = re.findall(r"^\| (`.*?) \|", text, re.MULTILINE)
    named = {name for row in rows for name in re.findall(r"`([^`]+)`", row)}
    assert named == set(KINDS) | set(Source.__dataclass_fields__) - {"name"}


FENCED = re.compile(r"^```(?:sh|python|bash)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
MADE = re.compile(
    r"alluvia (?:create|upload|backfill) (\w+)|source add ([\w-]+)|--table (\w+)|/v1/upload/(\w+)"
    r"|create_(?:table|events)\(\s*\"(\w+)\"|CREATE TABLE (\w+)|adbc_ingest\(\"(\w+)\""
)


def test_no_two_guides_make_a_table_or_a_source_of_one_name() -> None:
    """In one lake, the second would be refused, or find the rows of the first. The guide to streams has its own."""
    makers: dict[str, set[str]] = {}
    for page in PAGES:
        if "memory://" not in page.read_text():
            for block in FENCED.findall(page.read_text()):
                for names in MADE.findall(block):
                    makers.setdefault("".join(names), set()).add(page.name)
    assert {"placed", "acme", "sales", "purchases", "deliveries", "orders", "prices", "shop"} <= makers.keys()
    assert {name: pages for name, pages in makers.items() if len(pages) > 1} == {}
