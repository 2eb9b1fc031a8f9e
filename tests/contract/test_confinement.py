"""A query reads what it may read and nothing else: every way out that is known, on a directory and on S3.

Two walls stand one behind the other. Each is tried alone: the checks on the text (through the function, as a caller
meets them), and the shut database (with the raw text, as if the checks had let it through).
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import alluvia
from alluvia.engine.conditions.constants import Constants
from alluvia.engine.duck.failures import EngineError
from alluvia.engine.queries import rewrite
from alluvia.engine.queries.parse import parse
from alluvia.engine.queries.references import find_references
from alluvia.errors import AlluviaError
from alluvia.operations.reading.relations import Files
from alluvia.processes.pool import Watch
from alluvia.query.engine import run
from alluvia.query.limits import QueryLimits
from alluvia.query.process.processes import Engine
from alluvia.query.process.session import Session
from alluvia.query.scans import plan_scans
from alluvia.store.caches.file_cache import FILES, RemoteFile
from functions.query.handler import handler
from tests.contract.ways_out import INSIDE, OUTSIDE, READS
from tests.s3server import S3Server

HIDDEN = "the-hidden-value"


@dataclass(frozen=True)
class Place:
    """A lake with the table `events`, and around it what no query of it may reach."""

    lake: alluvia.Lake
    names: dict[str, str]
    secrets: tuple[str, ...]

    def text(self, form: str) -> str:
        for name, value in self.names.items():
            form = form.replace("{" + name + "}", value)
        return form


def _fill(lake: alluvia.Lake) -> str:
    table = lake.create_table("events", {"n": "long"})
    table.append([{"n": 1}])
    snapshot = table.snapshot()
    (file,) = snapshot.files
    return lake.store.url(snapshot.key(file)) or ""


def _hidden_parquet(path: Path) -> Path:
    pq.write_table(pa.table({"n": [HIDDEN]}), path)
    return path


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Place:
    root = tmp_path_factory.mktemp("places")
    (root / "hidden.txt").write_text(HIDDEN)
    (root / "hidden.csv").write_text(f"n\n{HIDDEN}\n")
    (root / "hidden.json").write_text(json.dumps({"n": HIDDEN}))
    _hidden_parquet(root / "hidden.parquet")
    lake = alluvia.connect(str(root / "lake"))
    other = alluvia.connect(str(root / "other"))
    names = {"file": _fill(lake), "foreign": _fill(other), "root": str(root), "folder": str(root / "lake" / "events")}
    return Place(lake, names, (str(root),))


@pytest.fixture(scope="module")
def s3(s3_server: S3Server, tmp_path_factory: pytest.TempPathFactory) -> Place:
    bucket = s3_server.new_bucket()
    root = f"s3://{bucket}"
    parquet = _hidden_parquet(tmp_path_factory.mktemp("s3") / "hidden.parquet").read_bytes()
    for key, data in (
        ("hidden.txt", HIDDEN.encode()),
        ("hidden.csv", f"n\n{HIDDEN}\n".encode()),
        ("hidden.json", json.dumps({"n": HIDDEN}).encode()),
        ("hidden.parquet", parquet),
    ):
        s3_server.client.put_object(Bucket=bucket, Key=key, Body=data)
    lake = alluvia.connect(f"{root}/lake", clock=None, **s3_server.options)
    other = alluvia.connect(f"{root}/other", clock=None, **s3_server.options)
    names = {"file": _fill(lake), "foreign": _fill(other), "root": root, "folder": f"{root}/lake/events"}
    host = s3_server.endpoint_url.removeprefix("http://")
    return Place(lake, names, (s3_server.options["secret_access_key"], s3_server.options["access_key_id"], host))


@pytest.fixture(params=["directory", "s3"])
def place(request: pytest.FixtureRequest) -> Place:
    found: Place = request.getfixturevalue(request.param)
    return found


def ask(place: Place, text: str) -> dict[str, Any]:
    with alluvia.serverless.warm_lake.using(place.lake):
        return handler({"query": text}, None)


@pytest.mark.parametrize("form", [*READS, *INSIDE, *OUTSIDE])
def test_the_text_is_refused(place: Place, form: str) -> None:
    a_python_variable = pa.table({"n": [HIDDEN]})
    assert len(a_python_variable) == 1
    answer = ask(place, place.text(form))
    assert 400 <= answer["statusCode"] < 500, answer
    assert set(json.loads(answer["body"])) == {"error"}
    for secret in (HIDDEN, *place.secrets):
        assert secret not in answer["body"] or secret in place.text(form)


BY_DUCKDB = QueryLimits(file_cache_bytes=0)


@contextmanager
def shut_database(place: Place, limits: QueryLimits = BY_DUCKDB) -> Iterator[Engine]:
    """Yield the database of a query on `events`, at the point where the user's text would run."""
    session = Session(place.lake.store, limits, Watch())
    try:
        constants = Constants(session.begin())
        references = find_references(parse("FROM events").root)
        (scan,) = plan_scans(place.lake.catalog, references, constants).scans.values()
        session.open({"scan_0": Files(scan.snapshot, scan.files)})
        connection = session._engine
        assert connection.execute("SELECT * FROM alluvia.scan_0").fetchall() == [[1]]
        yield connection
    finally:
        session.close()


@pytest.mark.parametrize("form", [*(form for form in READS if "events" not in form), *OUTSIDE])
def test_the_database_refuses_what_lies_outside(place: Place, form: str) -> None:
    with shut_database(place) as connection, pytest.raises(EngineError):
        connection.execute(place.text(form)).fetchall()


def test_the_database_gives_no_secret(place: Place) -> None:
    with shut_database(place) as connection:
        for text in ("FROM duckdb_secrets(redact => true)", "FROM duckdb_settings()", "FROM duckdb_variables()"):
            shown = str(connection.execute(text).fetchall())
            assert "test-secret" not in shown
    with shut_database(place) as connection, pytest.raises(EngineError):
        connection.execute("FROM duckdb_secrets(redact => false)").fetchall()


def test_the_environment_is_not_visible(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("A_HIDDEN_VARIABLE", HIDDEN)
    for text in ("SELECT getenv('A_HIDDEN_VARIABLE')", "FROM read_text('/proc/self/environ')"):
        answer = ask(place, text)
        assert answer["statusCode"] == 400
        assert HIDDEN not in answer["body"]
    assert os.environ["A_HIDDEN_VARIABLE"] == HIDDEN


@pytest.mark.parametrize(
    "text",
    [
        "EXPLAIN SELECT * FROM events",
        "DESCRIBE events",
        "SUMMARIZE events",
        "SELECT error(n::VARCHAR) FROM events",
        "SELECT CAST('x' || n AS INT) FROM events",
        "SELECT filename FROM events",
        "SELECT file_row_number FROM events",
        "SELECT alluvia_file FROM events",
        "SELECT file_index FROM events",
        "SELECT rowid FROM events",
        "SELECT * FROM events e, events f WHERE e.nope = f.n",
        "SELECT stats(n) FROM events",
    ],
)
def test_answers_and_errors_name_no_path_and_no_host(place: Place, text: str) -> None:
    body = ask(place, text)["body"]
    for secret in (*place.secrets, place.names["file"], place.names["folder"]):
        assert secret not in body


def test_nothing_was_written(place: Place) -> None:
    before = sorted(info.key for info in place.lake.store.list(""))
    for form in OUTSIDE:
        status = 403 if form.startswith("ATTACH") else 400  # which is a statement that writes
        assert ask(place, place.text(form))["statusCode"] == status
    for form in OUTSIDE:
        with shut_database(place) as connection, pytest.raises(EngineError):
            connection.execute(place.text(form))
    assert sorted(info.key for info in place.lake.store.list("")) == before
    if not place.names["root"].startswith("s3://"):
        written = {path.name for path in Path(place.names["root"]).iterdir()}
        assert written == {"hidden.txt", "hidden.csv", "hidden.json", "hidden.parquet", "lake", "other"}


def test_what_runs_is_what_was_checked(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """Should the text be spliced wrongly, it is refused and not run."""
    monkeypatch.setattr(rewrite, "_splice", lambda *_: rewrite.Rewritten("FROM duckdb_secrets()", (0,), (0,)))
    with pytest.raises(AlluviaError, match="name it plainly"):
        run(place.lake.catalog, "FROM events")


def test_a_table_that_a_query_does_not_name_is_closed_to_it(place: Place) -> None:
    place.lake.create_table("others", {"n": "long"}, exist_ok=True).append([{"n": 2}])
    snapshot = place.lake.table("others").snapshot()
    (file, *_) = snapshot.files
    url = place.lake.store.url(snapshot.key(file))
    with shut_database(place) as connection, pytest.raises(EngineError):
        connection.execute(f"FROM read_parquet('{url}')").fetchall()


def copies(place: Place) -> dict[str, str]:
    """Return paths of copies: of the file of `events`, of that of another table, and their folder."""
    lake = place.lake
    lake.create_table("others", {"n": "long"}, exist_ok=True).append([{"n": 2}])
    found = {}
    for name in ("events", "others"):
        snapshot = lake.table(name).snapshot()
        (file, *_) = snapshot.files
        held = FILES.hold(lake.store, [RemoteFile(snapshot.key(file), file.size, file.modification_time)], 1 << 20)
        (path,) = held.paths.values()
        held.release()
        found[name] = str(path)
    return {"copy": found["events"], "other": found["others"], "copies": str(Path(found["events"]).parent)}


@pytest.mark.parametrize(
    "form",
    [
        "FROM read_parquet('{other}')",
        "FROM read_blob('{other}')",
        "FROM '{other}'",
        "FROM parquet_metadata('{other}')",
        "FROM read_parquet(['{copy}', '{other}'])",
        "FROM read_parquet('{copies}/*')",
        "FROM read_blob('{copies}/*.parquet')",
        "FROM glob('{copies}/*')",
        "FROM read_parquet('{copies}/./../files/{other}')",
        "FROM read_parquet('file://{other}')",
        "FROM read_parquet('{file}')",
        "FROM read_parquet('{foreign}')",
        "COPY (SELECT 1) TO '{other}'",
        "COPY (SELECT 1) TO '{copies}/new.parquet'",
        "LOAD httpfs",
        "CREATE SECRET x (TYPE s3, KEY_ID 'a', SECRET 'b')",
    ],
)
def test_who_is_given_copies_opens_those_of_its_own_table_and_nothing_else(s3: Place, form: str) -> None:
    text = s3.text(form)
    for name, path in copies(s3).items():
        text = text.replace("{" + name + "}", path)
    with shut_database(s3, QueryLimits()) as connection, pytest.raises(EngineError):
        connection.execute(text).fetchall()


def test_a_copy_that_a_query_wrote_to_is_not_read_again(s3: Place) -> None:
    """If anything got past the checks of the text: DuckDB lets a query write where it may read."""
    copy = copies(s3)["copy"]
    with shut_database(s3, QueryLimits()) as connection, suppress(EngineError):  # a user other than root may not
        connection.execute(f"COPY (SELECT 666::BIGINT AS n) TO '{copy}'")
    assert run(s3.lake.catalog, "FROM events").read_all().to_pylist() == [{"n": 1}]


def test_a_pruned_file_is_closed_too(place: Place) -> None:
    table = place.lake.create_table("pruned", {"n": "long"}, exist_ok=True)
    table.append([{"n": 1}])
    table.append([{"n": 2}])
    session = Session(place.lake.store, BY_DUCKDB, Watch())
    try:
        constants = Constants(session.begin())
        scans = plan_scans(place.lake.catalog, find_references(parse("FROM pruned WHERE n = 1").root), constants).scans
        (scan,) = scans.values()
        session.open({"scan_0": Files(scan.snapshot, scan.files)})
        open_keys = {scan.snapshot.key(file) for file in scan.files}
        (closed,) = {scan.snapshot.key(file) for file in scan.snapshot.files} - open_keys
        with pytest.raises(EngineError):
            session._engine.execute(f"FROM read_parquet('{place.lake.store.url(closed)}')").fetchall()
    finally:
        session.close()
