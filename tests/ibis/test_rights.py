"""Tokens through ibis: the rights, row filters and hidden columns that HTTP has."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import ibis
import pyarrow as pa
import pytest
from ibis import _

import alluvia
from alluvia.errors import Forbidden
from tests.access import grant, token
from tests.ibis.sample import rows_of
from tests.serving import serving

ROWS = [{"tenant": tenant, "email": f"{tenant}@x", "n": n} for n, tenant in enumerate("aabbb")]


@dataclass(frozen=True)
class Callers:
    """Connections with tokens of different rights, and one without."""

    some: Any
    all: Any
    writer: Any
    nobody: Any


@pytest.fixture(scope="module")
def callers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callers]:
    folder = tmp_path_factory.mktemp("rights")
    lake = alluvia.connect(folder / "lake")
    lake.create_table("hits", {"tenant": "string", "email": "string", "n": "long"}).append(ROWS)
    lake.create_table("secrets", {"id": "long"}).append([{"id": 1}])
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CONFIG_HOME", str(folder / "config"))
        some = token(lake, grant("read:hits", "tenant = 'a'", "email"))
        writer = token(lake, grant("append:hits"))
        full = token(lake, grant("read:*"), grant("append:*"), grant("admin:*"))
        with serving(folder / "lake", "--auth", "tokens", "--allow-writes", quiet=True) as (_, port):
            url = f"http://127.0.0.1:{port}"
            yield Callers(
                ibis.alluvia.connect(url, token=some),
                ibis.connect(f"alluvia://{url}?token={full}"),
                ibis.alluvia.connect(url, token=writer),
                ibis.alluvia.connect(url),
            )


def test_a_caller_sees_its_rows_and_columns(callers: Callers) -> None:
    assert callers.some.list_tables() == ["hits"]
    hits = callers.some.table("hits")
    assert hits.columns == ("tenant", "n")
    assert rows_of(hits.order_by("n")) == [{"tenant": "a", "n": 0}, {"tenant": "a", "n": 1}]
    assert hits.count().to_pyarrow().as_py() == 2
    assert callers.all.list_tables() == ["hits", "secrets"]
    assert callers.all.table("hits").count().to_pyarrow().as_py() >= 5


BEYOND: list[Callable[[Any], Any]] = [
    lambda con: con.table("secrets"),
    lambda con: con.sql("SELECT id FROM secrets"),
    lambda con: con.create_table("mine", [{"a": 1}]),
    lambda con: con.insert("hits", [{"tenant": "b", "n": 8}]),
    lambda con: con.insert("hits", [{"tenant": "b", "n": 8}], overwrite=True),
    lambda con: con.drop_table("hits"),
    lambda con: con.truncate_table("hits"),
]


def test_a_caller_gets_no_further(callers: Callers) -> None:
    for refused in BEYOND:
        with pytest.raises(Forbidden, match="scope"):
            refused(callers.some)


def test_nobody_gets_in_without_a_token(callers: Callers) -> None:
    reads: list[Callable[[Any], Any]] = [lambda con: con.list_tables(), lambda con: con.table("hits")]
    for refused in [*BEYOND, *reads]:
        with pytest.raises(Forbidden, match="token"):
            refused(callers.nobody)


def test_the_right_to_append_is_enough_to_insert_rows(callers: Callers) -> None:
    callers.writer.insert("hits", pa.Table.from_pylist([{"tenant": "c", "email": "c@x", "n": 7}]))
    assert rows_of(callers.all.table("hits").filter(_.n == 7).select("tenant")) == [{"tenant": "c"}]
    with pytest.raises(Forbidden, match="scope read:hits"):
        callers.writer.table("hits")
