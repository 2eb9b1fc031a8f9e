"""Every code block of the README and of the guides runs as it stands there."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

import alluvia
from alluvia.cli.client import Client
from alluvia.delta.properties import KNOWN, read_properties
from alluvia.server.serve import in_background

ROOT = Path(__file__).parents[2]
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
README = ROOT / "README.md"


def blocks(path: Path, *kinds: str) -> list[tuple[str, str]]:
    found = [(kind, text) for kind, text in BLOCK.findall(path.read_text()) if kind in kinds]
    assert found, f"{path.name} has no block of {kinds}"
    return found


@pytest.fixture(scope="module")
def demo_lake(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """An environment with the lake that `make demo` leaves."""
    environment = {**os.environ, "ALLUVIA_LAKE": str(tmp_path_factory.mktemp("demo") / "lake")}
    subprocess.run([sys.executable, "-m", "alluvia.cli", "demo"], env=environment, check=True, capture_output=True)
    return environment


def test_python_blocks_run_one_after_another() -> None:
    names: dict[str, object] = {}
    for _, text in blocks(README, "python"):
        exec(compile(text, "README.md", "exec"), names)


def test_the_blocks_of_the_guide_to_tables_run_one_after_another() -> None:
    names: dict[str, object] = {}
    for _, text in blocks(ROOT / "docs" / "TABLES.md", "python"):
        exec(compile(text, "TABLES.md", "exec"), names)


def test_the_blocks_of_the_guide_to_rollups_run_one_after_another() -> None:
    names: dict[str, object] = {}
    for _, text in blocks(ROOT / "docs" / "ROLLUPS.md", "python"):
        exec(compile(text, "ROLLUPS.md", "exec"), names)


def test_the_blocks_of_the_guide_to_merge_queries_run_one_after_another() -> None:
    names: dict[str, object] = {}
    for _, text in blocks(ROOT / "docs" / "MERGE_QUERIES.md", "python"):
        exec(compile(text, "MERGE_QUERIES.md", "exec"), names)


def test_the_blocks_of_the_guide_to_transactions_run_one_after_another() -> None:
    names: dict[str, object] = {}
    for _, text in blocks(ROOT / "docs" / "TRANSACTIONS.md", "python"):
        exec(compile(text, "TRANSACTIONS.md", "exec"), names)


def test_the_blocks_of_the_guide_to_tags_run_one_after_another() -> None:
    names: dict[str, object] = {}
    for _, text in blocks(ROOT / "docs" / "TAGS.md", "python"):
        exec(compile(text, "TAGS.md", "exec"), names)


def test_the_blocks_of_the_guide_to_streams_run_one_after_another() -> None:
    names: dict[str, object] = {}
    for _, text in blocks(ROOT / "docs" / "guides" / "streams.md", "python"):
        exec(compile(text, "streams.md", "exec"), names)


def test_the_guide_to_tables_names_every_property_with_its_default() -> None:
    lines = (ROOT / "docs" / "TABLES.md").read_text().splitlines()
    cells = [[cell.strip() for cell in line.split("|")[1:3]] for line in lines if line.startswith("| `")]
    named = {name: default.strip("`") for names, default in cells for name in re.findall(r"`([\w.]+)", names)}
    own = {"alluvia.partition_by", "alluvia.sort_by", "alluvia.oldest_readable_version", "alluvia.rollup"}
    assert set(named) == (KNOWN - own - {"delta.enableInCommitTimestamps"}) | {"delta.constraints."}
    given = {name: default for name, default in named.items() if default}
    assert read_properties({}) == read_properties(given)


@pytest.mark.slow
def test_shell_blocks_run_and_print_what_the_readme_says(demo_lake: dict[str, str]) -> None:
    found = blocks(README, "sh", "text")
    for (kind, text), (next_kind, expected) in zip(found, [*found[1:], ("", "")], strict=True):
        if kind != "sh" or "make " in text:
            continue
        command = text.replace(".venv/bin/alluvia", f"{shlex.quote(sys.executable)} -m alluvia.cli")
        done = subprocess.run(["bash", "-ec", command], env=demo_lake, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        if next_kind == "text":
            assert [line.rstrip() for line in done.stdout.splitlines()] == expected.splitlines()


def test_make_targets_that_the_readme_names_exist() -> None:
    makefile = (ROOT / "Makefile").read_text()
    named = set(re.findall(r"make ([a-z-]+)", README.read_text()))
    assert {"demo", "test", "serve", "synth", "bench", "lint", "test-fast"} <= named
    assert all(re.search(rf"^{name}:", makefile, re.MULTILINE) for name in named)


def test_curl_examples_answer_as_the_readme_says(tmp_path: Path) -> None:
    text = "".join(block for _, block in blocks(README, "console"))
    examples = re.findall(r"^\$ curl (-d|--json) '(.*?)' localhost:8080(\S+)\n(.*)$", text, re.MULTILINE)
    assert len(examples) >= 2
    with in_background(alluvia.connect(str(tmp_path))) as port:
        for option, body, path, expected in examples:
            headers = {"Content-Type": "application/json", "Accept": "application/json"} if option == "--json" else {}
            reply = Client(port).post(path, body.encode(), headers)  # an open connection would delay the end
            assert reply.status == 200, reply.body
            assert reply.json() == json.loads(expected)


def test_the_links_of_every_page_lead_somewhere() -> None:
    for page in (*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("functions/*/README.md")):
        for target in re.findall(r"\]\(([^)#:]+)\)", page.read_text()):
            assert (page.parent / target).exists(), f"{page.name}: {target}"
