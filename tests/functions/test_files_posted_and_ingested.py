"""A file is the same file, however it comes: posted, ingested from a disk or uploaded."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from itertools import permutations
from pathlib import Path

import pytest
from click.testing import CliRunner

import alluvia
from alluvia.cli.command_line import cli
from functions.ingest.handler import handler
from tests.webhooks import event_of

Door = Callable[[str, Path], int]
CSV = b"sku,price\nA-1,9.90\nA-2,\nA-2,\n"
LINES = b"".join(b'{"event":"tick","ts":"2026-11-20T10:00:0%dZ"}\n' % (second // 2) for second in range(4))
ARRAY = b'[{"event":"tick","ts":"2026-11-20T10:00:00Z"},\n {"event":"tick","ts":"2026-11-20T10:00:00Z"}]'
TYPES = {"csv": "text/csv", "tsv": "text/tab-separated-values", "ndjson": "application/x-ndjson", "json": ""}
BODIES = {
    "rows": ("csv", CSV),
    "rows without a last line end": ("csv", CSV.rstrip()),
    "rows after a blank line": ("csv", b"\n" + CSV.replace(b"\n", b"\r\n") + b"\r\n"),
    "rows with a mark": ("csv", b"\xef\xbb\xbf" + CSV),
    "rows of which one is broken": ("csv", CSV + b'A-3,"9\n'),
    "tabs": ("tsv", CSV.replace(b",", b"\t")),
    "lines": ("ndjson", LINES),
    "one line": ("ndjson", LINES.splitlines()[0]),
    "lines without a type": ("json", LINES),
    "lines of which one is broken": ("json", LINES + b"no JSON\n"),
    "an array": ("json", ARRAY),
    "lines of which one has no time": ("ndjson", LINES + b'{"event":"tock"}\n{"event":"tock"}\n'),
    "lines of which one has a time that cannot be read": ("ndjson", LINES + b'{"event":"tock","ts":"yesterday"}\n'),
    "an array of which one has a time": ("json", b'[{"event":"tick"}, ' + ARRAY[1:]),
}


def posted(lake: str, path: Path, *, packed: bool = False) -> int:
    """Post a file; return how many rows and rejects are new."""
    body = path.read_bytes()
    headers = {"content-type": TYPES[path.suffix[1:]]} | ({"content-encoding": "gzip"} if packed else {})
    answer = handler(event_of("/v1/events/t", gzip.compress(body) if packed else body, headers), None)
    assert answer["statusCode"] in (200, 207), answer
    return _count(lake)


def ingested(lake: str, path: Path) -> int:
    result = CliRunner().invoke(cli, ["ingest", "t", str(path), "--lake", lake, "--json"])
    assert json.loads(result.stdout)["accepted"], result.output
    return _count(lake)


def uploaded(lake: str, path: Path) -> int:
    kind = {"json": "ndjson"}.get(path.suffix[1:], path.suffix[1:])
    event = event_of("/v1/upload/t", path.read_bytes(), {}, query=f"format={kind}")
    event["queryStringParameters"] = {"format": kind}
    assert handler(event, None)["statusCode"] in (200, 207)
    return _count(lake)


def _count(lake: str) -> int:
    found = alluvia.connect(lake)
    return sum(found.table(name).count() for name in found.tables(rejects=True))


@pytest.fixture
def lake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    uri = str(tmp_path / "lake")
    monkeypatch.setenv("ALLUVIA_LAKE", uri)
    alluvia.connect(uri).create_events("t")
    return uri


@pytest.mark.parametrize("doors", list(permutations([posted, ingested, uploaded], 2)), ids=lambda doors: "")
@pytest.mark.parametrize("name", BODIES)
def test_a_file_that_came_by_one_door_adds_nothing_by_another(
    name: str, doors: tuple[Door, Door], lake: str, tmp_path: Path
) -> None:
    ending, body = BODIES[name]
    path = tmp_path / f"file.{ending}"
    path.write_bytes(body)
    first, second = doors
    assert 0 < first(lake, path) == second(lake, path) == first(lake, path)


def test_a_compressed_post_is_the_same_file(lake: str, tmp_path: Path) -> None:
    path = tmp_path / "file.csv"
    path.write_bytes(CSV)
    assert posted(lake, path) == posted(lake, path, packed=True) == 3


def test_what_may_have_happened_twice_is_stored_twice(lake: str, tmp_path: Path) -> None:
    """One event alone, and events without a time."""
    path, counts = tmp_path / "file.json", []
    for body in (b'{"event":"tick","ts":"2026-11-20T10:00:00Z"}', b'{"event":"tick"}\n{"event":"tock"}\n'):
        path.write_bytes(body)
        counts += [posted(lake, path), posted(lake, path)]
    assert counts == [1, 2, 4, 6]
