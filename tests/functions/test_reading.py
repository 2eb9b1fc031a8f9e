"""Reads by GET: tags, 304, and results that the lake keeps."""

from __future__ import annotations

import base64
import gzip
import io
from hashlib import sha256
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import alluvia
from alluvia.errors import Invalid, Unavailable
from alluvia.operations.results.results import KeptResult, keep_result
from alluvia.serverless.query_settings import QuerySettings
from alluvia.store import Store
from functions.query import handler as query
from functions.query import queries
from functions.query.answering import run_query
from tests.access import grant, token
from tests.functions.test_query import Answer, event

COUNT = "SELECT count(*) AS c, sum(n) AS n FROM totals"


@pytest.fixture
def lake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> alluvia.Lake:
    monkeypatch.setenv("ALLUVIA_LAKE", str(tmp_path / "lake"))
    monkeypatch.setenv("ALLUVIA_RESULT_CACHE", "on")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    lake = alluvia.connect(str(tmp_path / "lake"))
    lake.create_table("totals", {"name": "string", "n": "long"}).append([{"name": "a", "n": 1}, {"name": "b", "n": 2}])
    return lake


def get(sql: str, tag: str = "", method: str = "GET", headers: dict[str, str] | None = None, **fields: str) -> Answer:
    given = ({"If-None-Match": tag} if tag else {}) | (headers or {})
    sent = event("", method=method) | {"headers": given, "rawQueryString": urlencode({"query": sql, **fields})}
    return query.handler(sent, None)


def ok(answer: Answer) -> tuple[str, str, str]:
    """Return the tag of an answer, its body, and where it came from."""
    assert answer["statusCode"] == 200, answer["body"]
    return answer["headers"]["ETag"], answer["body"], answer["headers"]["Alluvia-Cache"]


def kept(lake: alluvia.Lake) -> list[Path]:
    return sorted(Path(lake.uri.removeprefix("file://")).glob("_alluvia/results/*"))


def test_who_has_the_answer_gets_a_304_until_a_table_changes(lake: alluvia.Lake) -> None:
    answer = get(COUNT)
    tag, body, _ = ok(answer)
    assert (body, answer["headers"]["Cache-Control"]) == ('{"c":2,"n":3}\n', "private, no-cache")
    assert (tag[0], len(tag), tag[-1]) == ('"', 66, '"')
    for sent in (tag, f"W/{tag}", f'"other", {tag}', tag.replace('"', "", 1).replace('"', "")):
        for method in ("GET", "HEAD"):
            again = get(COUNT, sent, method)
            assert (again["statusCode"], again["body"], again["headers"]["ETag"]) == (304, "", tag)
    assert {get(COUNT, sent)["statusCode"] for sent in ("*", '"other"', "", '"', tag[:-1] + '-br"')} == {200}
    alluvia.connect(lake.uri)["totals"].append([{"name": "c", "n": 4}])
    changed, body, _ = ok(get(COUNT, tag))
    assert (body, changed == tag) == ('{"c":3,"n":7}\n', False)
    assert get(COUNT, changed)["statusCode"] == 304


def test_all_that_an_answer_depends_on_is_in_its_tag(lake: alluvia.Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    lake.sql("CREATE VIEW seen AS SELECT n FROM totals")
    answers = [
        get(COUNT), get(COUNT + " "), get(COUNT, format="csv"), get(COUNT, headers={"Accept": "application/json"}),
        get(COUNT + " WHERE n > $n", param_n="0"), get(COUNT + " WHERE n > $n", params='{"n": 0}'),
        get(COUNT + " WHERE n > $n", params='{"n": 0.0}'), get("FROM seen"), get("FROM totals(version => 1)"),
    ]  # fmt: skip
    lake.sql("CREATE OR REPLACE VIEW seen AS SELECT n + 1 AS n FROM totals")
    answers += [get("FROM seen")]
    lake.sql("DROP VIEW seen")
    lake.create_table("seen", {"n": "long"}).append([{"n": 9}])
    answers += [get("FROM seen")]
    lake.drop_table("totals")
    lake.create_table("totals", {"n": "long"}).append([{"n": 5}])
    answers += [get(COUNT)]
    monkeypatch.setattr("alluvia.query.identity._engine", lambda: "another")
    answers += [get(COUNT)]
    tags = [ok(each)[0] for each in answers]
    assert len(set(tags)) == len(tags)
    assert [answers[at]["body"] for at in (7, 9, 10)] == ['{"n":1}\n{"n":2}\n', '{"n":2}\n{"n":3}\n', '{"n":9}\n']
    assert answers[-1]["body"] == '{"c":1,"n":5}\n'


@pytest.mark.parametrize(
    ("sql", "tagged"),
    [
        ("FROM totals", True),
        ("FROM totals(version => 1)", True),
        ("WITH c AS (FROM totals) SELECT * FROM c JOIN totals USING (n)", True),
        ("SELECT 1 AS x", True),
        ("SELECT now() AS t, n FROM totals", False),
        ("SELECT n FROM totals WHERE current_date > DATE '2020-01-01'", False),
        ("SELECT random() FROM totals", False),
        ("FROM totals(now())", False),
        ("SHOW TABLES", False),
        ("DESCRIBE totals", False),
        ("EXPLAIN FROM totals", False),
        ("SELECT 1; SELECT 2", False),
        ("SELECT count(*) FROM fresh", False),
        ("FROM sums_final", True),
        ("FROM sums_final(version => 1) JOIN sums USING (name)", True),
        ("FROM rolled", True),
        ("FROM rolled_live", False),
        ("FROM rolled_freshness", False),
    ],
)
def test_only_what_can_be_asked_again_has_a_tag(lake: alluvia.Lake, sql: str, tagged: bool) -> None:
    lake.sql("CREATE VIEW fresh AS SELECT * FROM totals WHERE n < extract('year' FROM now())")
    if "sums" in sql:
        folding = {"alluvia.merge_query": "SELECT name, sum(n) AS n FROM source GROUP BY name"}
        lake.create_table("sums", {"name": "string", "n": "long"}, properties=folding).append([{"name": "a", "n": 1}])
    if "rolled" in sql:
        lake.create_rollup("rolled", "SELECT name, sum(n) AS n FROM totals GROUP BY name")
    answer = get(sql)
    assert answer["statusCode"] == 200
    assert ("ETag" in answer["headers"]) is tagged
    assert answer["headers"]["Cache-Control"] == ("private, no-cache" if tagged else "no-store")
    assert len(kept(lake)) == tagged


def test_folded_rows_are_tagged_by_the_table_that_they_are_of(lake: alluvia.Lake) -> None:
    folding = {"alluvia.merge_query": "SELECT name, sum(n) AS n FROM source GROUP BY name"}
    table = lake.create_table("sums", {"name": "string", "n": "long"}, properties=folding)
    tags = []
    for n in (1, 2):
        table.append([{"name": "a", "n": n}])
        tag, _, state = ok(get("FROM sums_final"))
        assert (state, ok(get("FROM sums_final"))[1:]) == ("miss", (f'{{"name":"a","n":{n * (n + 1) // 2}}}\n', "hit"))
        tags.append(tag)
    lake.create_table("sums_final", {"n": "long"})
    assert ok(get("FROM sums_final"))[0] not in tags


def test_a_kept_result_is_read_in_place_of_the_table(lake: alluvia.Lake) -> None:
    first = get(COUNT)
    assert ok(first)[2] == "miss"
    assert [first["headers"][f"Alluvia-{name}"] for name in ("Rows", "Files-Read", "Versions")] == [
        "1",
        "1",
        "totals=1",
    ]
    for path in Path(lake.uri.removeprefix("file://")).glob("totals/*.parquet"):
        path.unlink()
    second = get(COUNT)
    assert ok(second) == (ok(first)[0], ok(first)[1], "hit")
    assert [second["headers"][f"Alluvia-{name}"] for name in ("Rows", "Files-Read", "Bytes-Read")] == ["1", "0", "0"]


def test_a_posted_read_shares_kept_results(lake: alluvia.Lake) -> None:
    def post(text: str, **headers: str) -> Answer:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        return query.handler(event(text.encode()) | {"headers": {"Content-Type": "text/plain", **named}}, None)

    answers = [post(COUNT), post(COUNT), get(COUNT), post(COUNT, Cache_Control="no-store")]
    assert [answer["headers"]["Alluvia-Cache"] for answer in answers] == ["miss", "hit", "hit", "off"]
    assert {answer["body"] for answer in answers} == {'{"c":2,"n":3}\n'}
    for answer in (answers[0], answers[1], answers[3]):
        assert (answer["headers"]["Cache-Control"], "ETag" in answer["headers"]) == ("no-store", False)
    assert get(COUNT, headers={"Cache-Control": "no-cache"})["headers"]["Alluvia-Cache"] == "off"
    lake["totals"].append([{"name": "c", "n": 4}])
    assert (post(COUNT)["body"], post("SELECT now() AS t")["headers"].get("Alluvia-Cache")) == ('{"c":3,"n":7}\n', None)
    assert len(kept(lake)) == 2


def test_without_the_setting_nothing_is_kept(lake: alluvia.Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ALLUVIA_RESULT_CACHE")
    assert [ok(get(COUNT))[2] for _ in range(2)] == ["off", "off"]
    monkeypatch.setenv("ALLUVIA_RESULT_CACHE", "on")
    monkeypatch.setenv("ALLUVIA_RESULT_CACHE_RESULT_BYTES", "5")
    assert [ok(get(COUNT))[2] for _ in range(2)] == ["miss", "miss"]
    assert kept(lake) == []


@pytest.mark.parametrize("damage", ["cut", "empty", "flipped", "another", "garbage"])
def test_a_damaged_result_is_never_served(lake: alluvia.Lake, damage: str) -> None:
    expected = ok(get(COUNT))[1]
    (path,) = kept(lake)
    data = path.read_bytes()
    ok(get("SELECT 42 AS c"))
    (other,) = set(kept(lake)) - {path}
    middle = len(data) // 2
    damaged = {
        "cut": data[:-1],
        "empty": b"",
        "flipped": data[:middle] + bytes([data[middle] ^ 1]) + data[middle + 1 :],
        "another": other.read_bytes(),
        "garbage": b"x" * 100,
    }
    path.write_bytes(damaged[damage])
    assert ok(get(COUNT))[1:] == (expected, "miss")
    assert ok(get(COUNT))[1:] == (expected, "hit")


def test_a_change_while_the_query_runs_is_not_kept_under_the_old_version(
    lake: alluvia.Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The tag is found first, and the run reads a newer version: its answer has the tag of what it has read."""

    def meanwhile(*args: Any) -> Any:
        alluvia.connect(lake.uri)["totals"].append([{"name": "c", "n": 4}])
        return run_query(*args)

    with monkeypatch.context() as patch:
        patch.setattr(queries, "run_query", meanwhile)
        tag, body, _ = ok(get(COUNT))
    assert body == '{"c":3,"n":7}\n'
    assert ok(get(COUNT)) == (tag, body, "hit")


def test_an_erasure_deletes_kept_results_also_of_queries_under_way(
    lake: alluvia.Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    ok(get("FROM totals"))
    assert len(kept(lake)) == 1
    lake["totals"].erase("name = 'a'")
    assert kept(lake) == []

    def late(*args: Any) -> None:
        alluvia.connect(lake.uri)["totals"].erase("name = 'b'")
        keep_result(*args)

    monkeypatch.setattr(queries, "keep_result", late)
    assert ok(get("FROM totals"))[1] == '{"name":"b","n":2}\n'
    assert [path.read_bytes() for path in kept(lake)] == [b""]


def test_an_answer_does_not_wait_for_a_store_that_does_not_keep_it(
    lake: alluvia.Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*_: object) -> None:
        raise Unavailable("the store does not answer")

    monkeypatch.setattr(queries, "keep_result", refused)
    assert ok(get(COUNT))[1:] == ('{"c":2,"n":3}\n', "off")

    def dropped(store: Store, key: str, result: KeptResult) -> None:
        keep_result(store, key, result)
        lake.drop_table("totals")

    monkeypatch.setattr(queries, "keep_result", dropped)
    assert ok(get(COUNT))[1:] == ('{"c":2,"n":3}\n', "miss")
    assert [path.read_bytes() for path in kept(lake)] == [b""]


def test_no_answer_is_for_another_caller(lake: alluvia.Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ALLUVIA_AUTH", "tokens")
    tokens = {
        "all": token(lake, grant("read:totals")),
        "few": token(lake, grant("read:totals", where="n > 1")),
        "now": token(lake, grant("read:totals", where="n < epoch(now())")),
        "hide": token(lake, grant("read:totals", hide="name")),
        "none": token(lake, grant("read:other")),
    }
    answers = {name: get("FROM totals", headers={"Authorization": f"Bearer {each}"}) for name, each in tokens.items()}
    assert [answer["statusCode"] for answer in answers.values()] == [200, 200, 200, 200, 403]
    bodies = ['{"name":"a","n":1}\n{"name":"b","n":2}\n', '{"name":"b","n":2}\n', None, '{"n":1}\n{"n":2}\n']
    assert [answers[name]["body"] for name in ("all", "few", "hide")] == [bodies[0], bodies[1], bodies[3]]
    tags = {name: answer["headers"].get("ETag") for name, answer in answers.items()}
    assert (tags["now"], tags["none"], len({tags["all"], tags["few"], tags["hide"]})) == (None, None, 3)
    for name, bearer in tokens.items():
        for other, tag in tags.items():
            again = get("FROM totals", tag or '"x"', headers={"Authorization": f"Bearer {bearer}"})
            assert (again["statusCode"] == 304) is (name == other and tag is not None)
            assert again["statusCode"] in (200, 304) or name == "none"
            assert again["statusCode"] != 200 or again["body"] == answers[name]["body"]
    assert "Alluvia-Bytes-Read" not in answers["few"]["headers"]
    assert get("FROM totals", tags["all"] or "")["statusCode"] == 401


def test_a_failed_read_is_never_a_200_nor_kept(lake: alluvia.Lake) -> None:
    for sql, status in (("SELECT nope FROM totals", 400), ("FROM nothing", 404), ("FROM totals(version => 9)", 404)):
        for _ in range(2):
            answer = get(sql)
            assert (answer["statusCode"], answer["headers"]["Cache-Control"]) == (status, "no-store")
            assert "ETag" not in answer["headers"]
    assert kept(lake) == []


def test_forms_and_codings(lake: alluvia.Lake) -> None:
    text = "SELECT i AS n, 'a\tb' AS s, NULL AS e FROM range(1000) t(i)"
    digest = sha256(text.encode()).hexdigest()

    def by_path(suffix: str, coding: str = "") -> Answer:
        sent = event("", method="GET", path=f"/q/{digest}.{suffix}") | {"rawQueryString": "query=" + quote(text)}
        return query.handler(sent | {"headers": {"Accept-Encoding": coding}}, None)

    tsv = by_path("tsv")
    assert tsv["headers"]["Content-Type"] == "text/tab-separated-values; charset=utf-8"
    assert tsv["body"].startswith("n\ts\te\n0\ta\\tb\t\\N\n1\t")
    parquet = by_path("parquet", "gzip")
    assert (parquet["headers"]["Content-Type"], "Content-Encoding" in parquet["headers"]) == (
        "application/vnd.apache.parquet",
        False,
    )
    table = pq.read_table(io.BytesIO(base64.b64decode(parquet["body"])))
    assert (table.column_names, table["n"].to_pylist()) == (["n", "s", "e"], list(range(1000)))
    plain = by_path("csv")
    packed = {coding: by_path("csv", header) for coding, header in (("gzip", "gzip, deflate"), ("zstd", "gzip, zstd"))}
    for coding, answer in packed.items():
        assert answer["headers"]["Content-Encoding"] == coding
        assert answer["headers"]["ETag"] == plain["headers"]["ETag"][:-1] + f'-{coding}"'
        assert get(text, answer["headers"]["ETag"], format="csv")["statusCode"] == 304
    assert gzip.decompress(base64.b64decode(packed["gzip"]["body"])).decode() == plain["body"]
    zstd = pa.decompress(base64.b64decode(packed["zstd"]["body"]), len(plain["body"]), codec="zstd", asbytes=True)
    assert zstd.decode() == plain["body"]
    for header in ("identity", "br", "gzip;q=0, zstd;q=0", "gzip;q=0.1, identity"):
        assert "Content-Encoding" not in by_path("csv", header)["headers"], header
    assert "Content-Encoding" not in get("SELECT 1", headers={"Accept-Encoding": "gzip"})["headers"]


def test_cache_control_is_a_setting(lake: alluvia.Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ALLUVIA_CACHE_CONTROL", "public, max-age=60")
    assert get(COUNT)["headers"]["Cache-Control"] == "public, max-age=60"
    assert get("SELECT now()")["headers"]["Cache-Control"] == "no-store"
    with pytest.raises(Invalid, match="ALLUVIA_CACHE_CONTROL is"):
        QuerySettings.read({"ALLUVIA_CACHE_CONTROL": "private\r\nX: y"})
    with pytest.raises(Invalid, match="ALLUVIA_RESULT_CACHE is 'yes'"):
        QuerySettings.read({"ALLUVIA_RESULT_CACHE": "yes"})


MATRIX = {  # who asks: the status of a read in each way, and of one with the tag of who may read all
    "nobody": (401, 401),
    "forged": (401, 401),
    "append": (403, 403),
    "write": (403, 403),
    "admin": (403, 403),
    "another table": (403, 403),
    "read": (200, 304),
    "read all tables": (200, 304),
    "read some rows": (200, 200),
    "read some columns": (200, 200),
    "off": (200, 304),
}


def test_who_may_read_in_which_way(lake: alluvia.Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    tag, whole, _ = ok(get("FROM totals"))  # which the lake keeps from now on
    monkeypatch.setenv("ALLUVIA_AUTH", "tokens")
    grants = {
        **{operation: grant(f"{operation}:totals") for operation in ("append", "write", "admin", "read")},
        "another table": grant("read:others"),
        "read all tables": grant("read:*"),
        "read some rows": grant("read:totals", where="name = 'b'"),
        "read some columns": grant("read:totals", hide="n"),
    }
    bearers = {"nobody": None, "forged": "a.b.c"} | {name: token(lake, each) for name, each in grants.items()}
    digest = sha256(b"FROM totals").hexdigest()
    search = {"rawQueryString": "query=FROM+totals"}
    asked = {
        "POST": event('{"query": "FROM totals"}'),
        "GET": event("", method="GET") | search,
        "HEAD": event("", method="HEAD") | search,
        "hash": event("", method="GET", path=f"/q/{digest}") | search,
    }
    seen = {"read some rows": '{"name":"b","n":2}\n', "read some columns": '{"name":"a"}\n{"name":"b"}\n'}
    for name, (status, with_tag) in MATRIX.items():
        if name == "off":
            monkeypatch.setenv("ALLUVIA_AUTH", "open")
        bearer = bearers.get(name)
        headers = {} if bearer is None else {"Authorization": f"Bearer {bearer}"}
        for way, sent in asked.items():
            answer = query.handler(sent | {"headers": headers}, None)
            assert answer["statusCode"] == status, (name, way)
            if status == 200:
                assert answer["body"] == seen.get(name, whole), (name, way)
            else:
                assert "name" not in answer["body"].replace("names", ""), (name, way)
        again = query.handler(asked["GET"] | {"headers": headers | {"If-None-Match": tag}}, None)
        assert again["statusCode"] == with_tag, name
