"""What people see and try first: reprs, notebooks, counts, conversions, and names that other libraries have."""

from __future__ import annotations

import re
import subprocess
import sys
from dataclasses import replace
from importlib.metadata import version
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

import alluvia
from alluvia.api import api_hints
from alluvia.api.lake import Lake, Table
from alluvia.commit.changes import ENGINE, Changes
from alluvia.errors import Corrupt, Invalid, NotInstalled, TableNotFound
from alluvia.store import CountingStore
from tests.rejects import create_rejects

VECTORS = {"delta.enableDeletionVectors": "true"}
ROWS = [{"n": n} for n in range(5)]


@pytest.fixture
def table(lake: Lake) -> Table:
    made = lake.create_table("events", {"n": "long", "<b>": "string"})
    made.append(ROWS)
    return made


def forget_statistics(table: Table) -> None:
    """Commit the files again without statistics, as other writers may."""
    snapshot = table.snapshot()
    adds = [replace(file, stats=None, path=file.path) for file in snapshot.files]
    table._handle.transaction(snapshot).commit(Changes("WRITE", adds=adds))


def test_a_repr_makes_no_request(lake: Lake, store: CountingStore, table: Table) -> None:
    snapshot = table.snapshot()
    store.reset()
    assert repr(lake) == "<Lake 'memory://m'>"
    assert repr(lake["nope"]) == "<Table 'nope' of 'memory://m'>"
    assert repr(table) == "<Table 'events' of 'memory://m', version 1>"
    assert re.fullmatch(r"<Snapshot 'events', version 1, committed \d{4}-\d\d-\d\d \S+ UTC>", repr(snapshot))
    assert repr(snapshot.files) == "<ActionSet of 1>"
    assert not store.requests


def test_notebooks_show_columns_and_tables_escaped(lake: Lake, table: Table) -> None:
    shown = table._repr_html_()
    assert "<td>&lt;b&gt;</td><td>string</td>" in shown
    assert "<b>events</b><br>version 1, committed" in shown
    assert "<b>" not in shown.replace("<b>events</b>", "")
    assert "<td>events</td>" in lake._repr_html_()
    assert "there is no table &#x27;nope&#x27;" in lake["nope"]._repr_html_()
    assert lake._ipython_key_completions_() == ["events"]


def test_a_lake_is_iterated_and_asked_by_name(lake: Lake, store: CountingStore, table: Table) -> None:
    create_rejects(lake, "events", {"n": "long"})
    lake.create_table("gone", {"n": "long"})
    lake.drop_table("gone")
    assert list(lake) == ["events"]
    assert [name in lake for name in ("events", "events/_rejects", "nope", "gone", "Not a name")] == [
        *(True, True, False, False, False)
    ]
    assert 1 not in lake
    assert lake["events"].to_arrow(["n"], where="n > 3").to_pylist() == [{"n": 4}]
    with pytest.raises(TableNotFound):
        _ = lake["nope"].version


def test_the_newest_version_is_what_another_process_made_it(table: Table, other: Lake) -> None:
    theirs = other.table("events")
    theirs.evolve(add={"m": "long"})
    theirs.append(ROWS)
    assert (table.version, table.schema.names, len(table.files), table.count()) == (3, ["n", "<b>", "m"], 2, 10)
    assert table.count(version=1) == 5


def test_counting_reads_no_data_file(lake: Lake, store: CountingStore) -> None:
    table = lake.create_table("t", {"n": "long"}, properties=VECTORS)
    assert table.count() == 0
    for _ in range(3):
        table.append(ROWS)
    table.delete("n = 2")
    assert any(file.deletion_vector for file in table.files)
    store.reset()
    assert table.count() == 12
    assert dict(store.requests) == {"get": 1}  # which looks for a new commit


@pytest.mark.parametrize("as_struct", ["true", "false"])
def test_a_checkpoint_and_commits_after_it_are_counted_alike(lake: Lake, store: CountingStore, as_struct: str) -> None:
    kept = {"delta.checkpoint.writeStatsAsStruct": as_struct}
    table = lake.create_table("t", {"n": "long"}, properties={**VECTORS, **kept})
    for start in range(0, 20, 5):
        table.append([{"n": n} for n in range(start, start + 5)])
    table.delete("n IN (2, 7)")
    table.checkpoint()
    table.delete("n IN (8, 10) OR n >= 15")
    table.append(ROWS)
    other = alluvia.api.lake.Lake(store, table._handle.clock)["t"]
    assert other.version == 7
    store.reset()
    assert other.count() == other.to_arrow().num_rows == 16
    assert other.count(version=5) == 18
    assert "put" not in store.requests


def test_a_file_listed_with_and_without_a_deletion_vector_is_not_counted_twice(lake: Lake) -> None:
    table = lake.create_table("t", {"n": "long"}, properties=VECTORS)
    table.append(ROWS)
    (whole,) = table.files
    table.delete("n = 2")
    table._handle.transaction(table.snapshot()).commit(Changes("WRITE", adds=[whole]))
    with pytest.raises(Corrupt, match="is in the table twice, with different deletion vectors"):
        table.count()


def test_files_without_statistics_are_looked_into(lake: Lake, store: CountingStore) -> None:
    table = lake.create_table("t", {"n": "long"}, properties=VECTORS)
    table.append(ROWS)
    table.delete("n = 2")
    forget_statistics(table)
    assert [file.num_records for file in table.files] == [None]
    store.reset()
    assert table.count() == table.to_arrow().num_rows == 4
    (file,) = table.files
    store.delete([f"t/{file.path}"])
    with pytest.raises(Corrupt, match="is missing"):
        table.count()
    store.put(f"t/{file.path}", b"PAR1, not really")
    with pytest.raises(Corrupt, match="cannot be read"):
        table.count()


def test_pandas_and_polars_are_optional(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    for package, convert in (("pandas", table.to_pandas), ("polars", table.to_polars)):
        monkeypatch.setitem(sys.modules, package, None)
        with pytest.raises(NotInstalled, match=f"{package} is not installed: pip install {package}"):
            convert()
    monkeypatch.setitem(sys.modules, "polars", SimpleNamespace(from_arrow=pa.Table.to_pylist))
    assert table.to_polars(["n"], where="n > 3") == [{"n": 4}]
    monkeypatch.setitem(sys.modules, "pandas", SimpleNamespace())
    with pytest.raises(Invalid, match="'nope' is not in the table"):
        table.to_pandas(["nope"])


@pytest.mark.parametrize(
    ("owner", "names"), [("alluvia", api_hints.MODULE), ("lake", api_hints.LAKE), ("table", api_hints.TABLE)]
)
def test_names_of_other_libraries_say_what_to_call(lake: Lake, table: Table, owner: str, names: dict[str, str]) -> None:
    objects: dict[str, Any] = {"alluvia": alluvia, "lake": lake, "table": table}
    for name, use in names.items():
        with pytest.raises(AttributeError, match=re.escape(f"has no {name!r}; use {use}")):
            getattr(objects[owner], name)
        for where, what in re.findall(r"\b(alluvia|lake|table)\.(\w+)", use):
            assert hasattr(objects[where], what)
    with pytest.raises(AttributeError, match=r"has no 'nope'$"):
        _ = objects[owner].nope


def test_earlier_names_say_what_to_call(lake: Lake) -> None:
    for name in ("publish", "unpublish"):
        with pytest.raises(AttributeError, match=rf"has no '{name}'; use lake\.{name}_query\(name"):
            getattr(lake, name)


def test_what_others_construct_says_what_to_call(table: Table) -> None:
    unknown: Any = alluvia
    with pytest.raises(TypeError, match=r"alluvia\.open_table\(uri\)"):
        unknown.Table("events")
    with pytest.raises(TypeError, match=r"alluvia\.connect\(uri\)"):
        unknown.Lake("s3://bucket")
    for call in (unknown.Table.optimize.compact, unknown.Table.optimize.z_order):
        with pytest.raises(TypeError, match=r"call table\.optimize\(\)"):
            call(["n"])


def test_the_version_is_in_one_place() -> None:
    assert alluvia.__version__ == version("alluvia")
    assert f"Alluvia/{alluvia.__version__}" == ENGINE


def test_errors_come_from_the_package_and_importing_it_is_cheap() -> None:
    assert alluvia.TableNotFound is TableNotFound
    assert {"Conflict", "connect", "__version__"} <= set(dir(alluvia))
    assert all(hasattr(alluvia, name) for name in alluvia.__all__)
    script = (
        "import sys, alluvia; print(*sorted(name for name in sys.modules if name.startswith(('alluvia', 'pyarrow'))))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["alluvia", "alluvia.errors", "alluvia.version"]
