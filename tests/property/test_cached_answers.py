"""Whatever is written, asked and asked again in between, nobody gets an answer that is stale, or somebody else's."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import alluvia
from alluvia.serverless.settings import environment
from functions.query import handler as query
from tests.access import grant, token
from tests.examples import examples
from tests.functions.test_query import event

QUERIES = {
    "rows": "SELECT * FROM t ORDER BY n",
    "view": "SELECT sum(n) AS s FROM v",
    "old": "SELECT count(*) AS c FROM t(version => 1)",
    "now": "SELECT count(*) AS c, now() IS NULL AS x FROM t",
}
GRANTS = {
    "all": [grant("read:t read:v")],
    "few": [grant("read:t", where="n > 3"), grant("read:v")],
    "hidden": [grant("read:t", hide="name"), grant("read:v")],
    "lent": [grant("query:*", where="n > 3")],
}
"""The last one runs the queries as they are published, with the rights of their publisher."""
NUMBERS = st.integers(1, 6)
WRITING = st.one_of(
    st.just(("append", 6)),
    st.tuples(st.sampled_from(["append", "delete", "erase", "view"]), NUMBERS),
    st.just(("replace",)),
    st.tuples(st.just("publish"), NUMBERS),
)
ASKING = st.tuples(st.permutations([*GRANTS]), st.sampled_from([*QUERIES]), st.integers(0, 9))
ROUNDS = st.lists(st.tuples(st.one_of(st.none(), WRITING), ASKING, ASKING), min_size=2, max_size=5)
Row = dict[str, Any]


class Model:
    """What is in the lake: the rows of t, those of its version 1 (None: it cannot be read), and what v adds."""

    def __init__(self, folder: Path) -> None:
        self.lake = alluvia.connect(str(folder))
        self.rows: list[int] = []
        self.added = 0
        self.old: list[int] | None = None
        self.bearers = {name: token(self.lake, *grants) for name, grants in GRANTS.items()}
        self.lake.create_table("t", {"name": "string", "n": "long"})
        self.append(1)
        self.old = [1]
        self.view(0)
        self.without = 0
        for name, text in QUERIES.items():
            self.lake.publish_query(name, text)

    def append(self, n: int) -> None:
        if n not in self.rows:
            self.lake["t"].append([{"name": f"x{n}", "n": n}])
            self.rows.append(n)

    def delete(self, n: int) -> None:
        self.lake["t"].delete(f"n = {n}")
        self.rows = [each for each in self.rows if each != n]

    def erase(self, n: int) -> None:
        if self.lake["t"].erase(f"n = {n}").oldest_version > 1:
            self.old = None
        self.rows = [each for each in self.rows if each != n]

    def view(self, n: int) -> None:
        self.lake.sql(f"CREATE OR REPLACE VIEW v AS SELECT n + {n} AS n FROM t")
        self.added = n

    def publish(self, n: int) -> None:
        self.lake.publish_query("rows", f"SELECT * FROM t WHERE n <> {n} ORDER BY n")
        self.without = n

    def replace(self) -> None:
        self.lake.drop_table("t")
        self.lake.create_table("t", {"name": "string", "n": "long"})
        self.rows, self.old = [], None

    def expected(self, caller: str, name: str) -> list[Row] | None:
        """Return the rows of an answer; None where the query fails."""
        sees_few = caller in ("few", "lent")
        seen = [n for n in sorted(self.rows) if not sees_few or n > 3]
        if name == "rows":
            seen = [n for n in seen if caller != "lent" or n != self.without]
            return [{"n": n} if caller == "hidden" else {"name": f"x{n}", "n": n} for n in seen]
        if name == "view":
            return [{"s": sum(n + self.added for n in seen) if seen else None}]
        if name == "now":
            return [{"c": len(seen), "x": False}]
        return None if self.old is None else [{"c": len([n for n in self.old if not sees_few or n > 3])}]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    folder = tmp_path_factory.mktemp("answers")
    given = {"ALLUVIA_AUTH": "tokens", "ALLUVIA_RESULT_CACHE": "on", "XDG_CONFIG_HOME": str(folder / "config")}
    with environment(given | {"POWERTOOLS_LOG_LEVEL": "WARNING"}):
        yield folder


def ask(model: Model, caller: str, name: str, tag: str | None) -> dict[str, Any]:
    headers = {"Authorization": f"Bearer {model.bearers[caller]}"} | ({} if tag is None else {"If-None-Match": tag})
    if caller == "lent":
        return query.handler(event("", method="GET", path=f"/v1/queries/{name}.ndjson") | {"headers": headers}, None)
    if tag is None and name != "rows":  # of which the others are asked by GET
        return query.handler(event(json.dumps({"query": QUERIES[name]})) | {"headers": headers}, None)
    search = urlencode({"query": QUERIES[name]})
    return query.handler(event("", method="GET") | {"headers": headers, "rawQueryString": search}, None)


@settings(max_examples=examples(12), deadline=None)
@given(rounds=ROUNDS)
def test_no_answer_is_stale_or_anothers(place: Path, rounds: list[tuple[Any, ...]]) -> None:
    folder = place / f"lake-{len(list(place.iterdir()))}"
    with environment({"ALLUVIA_LAKE": str(folder)}):
        model = Model(folder)
        bodies: dict[str, str] = {}  # of every tag that anyone was given
        for write, *askings in rounds:
            if write is not None:
                getattr(model, write[0])(*write[1:])
            for callers, name, pick in askings:
                for caller in callers:
                    check(model, caller, name, [None, *bodies][-1 - pick % (len(bodies) + 1)], bodies)


def check(model: Model, caller: str, name: str, tag: str | None, bodies: dict[str, str]) -> None:
    """Ask, with a tag that somebody was given, and compare with the model."""
    answer = ask(model, caller, name, tag)
    expected = model.expected(caller, name)
    if answer["statusCode"] == 304:
        assert [json.loads(line) for line in bodies[answer["headers"]["ETag"]].splitlines()] == expected
    elif expected is None:
        assert answer["statusCode"] in (404, 410)
    else:
        assert answer["statusCode"] == 200, answer["body"]
        assert [json.loads(line) for line in answer["body"].splitlines()] == expected
        if "ETag" in answer["headers"]:
            bodies[answer["headers"]["ETag"]] = answer["body"]
