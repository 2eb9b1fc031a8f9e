"""`alluvia.connect("http://…")`: the client has the names of the lake's own methods, and the same outcomes."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import alluvia
from alluvia.api.served_lake import ServedLake
from alluvia.errors import Forbidden, Invalid, TableNotFound, Unavailable
from alluvia.events.ingest.dict_events import BODY_EVENTS, EventsOutcome
from tests.access import grant, token
from tests.serving import serving


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, str]]:
    folder = tmp_path_factory.mktemp("served") / "lake"
    with serving(folder, "--allow-writes", quiet=True) as (_, port):
        yield folder, f"http://127.0.0.1:{port}"


@pytest.fixture
def served(place: tuple[Path, str]) -> Iterator[ServedLake]:
    with alluvia.connect_server(place[1]) as lake:
        yield lake


@pytest.fixture(params=["itself", "served"])
def lake(request: pytest.FixtureRequest, tmp_path: Path, served: ServedLake) -> Any:
    return alluvia.connect(tmp_path) if request.param == "itself" else served


def fresh() -> str:
    return f"t{uuid.uuid4().hex}"


def test_dicts_are_events_here_and_at_a_server(lake: Any) -> None:
    table = lake[fresh()]
    assert table.ingest({"event": "one"}) == EventsOutcome(1, 1, 0, 0, 0, 1)
    values = {
        "at": datetime(2026, 11, 28, tzinfo=UTC),
        "day": date(2026, 11, 28),
        "price": Decimal("1.10"),
        "tags": {"a"},
    }
    several = [{"event_id": "a", "event": "two", **values}, {"event_id": "b", "event": "three"}]
    assert table.ingest(several) == EventsOutcome(2, 2, 0, 0, 0, 2)
    assert table.ingest(each for each in several) == EventsOutcome(2, 0, 2, 0, 0, 2)
    assert table.count() == 3
    [stored] = table.to_arrow(["properties"], "event_id = 'a'")["properties"].to_pylist()
    assert stored == '{"at":"2026-11-28T00:00:00+00:00","day":"2026-11-28","price":1.1,"tags":["a"]}'


def test_an_event_that_does_not_fit_is_a_reject_with_its_position(lake: Any) -> None:
    name = fresh()
    done = lake[name].ingest([{"event_id": "a", "event": "x"}, {"event_id": "a", "event": "y"}])
    assert (done.accepted, done.rejected, done.conflicting) == (1, 1, 1)
    assert [each["position"] for each in done.errors] == [1]
    assert "the content differs" in done.errors[0]["reason"]
    assert lake.sql(f"SELECT count(*) AS n FROM {name}._rejects")["n"].to_pylist() == [1]


def test_numbers_that_few_can_write_cost_no_other_event(lake: Any) -> None:
    name = fresh()
    done = lake[name].ingest(
        [
            {"event_id": "a", "event": "x", "n": 2**64, "m": [-(2**90), None]},
            {"event_id": "b", "event": "x", "n": float("nan")},
            {"event_id": "c", "event": "x", "of": {"n": [float("-inf")]}},
            {"event_id": "d", "event": "x", "n": Decimal("NaN")},
            {"event_id": "e", "event": "x", "n": None},
        ]
    )
    assert (done.accepted, done.rejected) == (2, 3)
    assert [each["position"] for each in done.errors] == [1, 2, 3]
    stored = lake[name].to_arrow(["event_id", "properties"])
    assert dict(zip(*stored.to_pydict().values(), strict=True)) == {
        "a": f'{{"n":{2**64},"m":[{-(2**90)},null]}}',
        "e": '{"n":null}',
    }
    raws = lake.sql(f"SELECT decode(raw) AS raw FROM {name}._rejects ORDER BY raw")["raw"].to_pylist()
    assert raws[0] == '{"event_id":"b","event":"x","n":NaN}'


def test_a_key_makes_a_second_call_add_nothing(lake: Any) -> None:
    table = lake[fresh()]
    events = [{"n": n} for n in range(BODY_EVENTS + 2)]  # two bodies
    first = table.ingest(events, key="k")
    assert (first.stored, first.duplicates) == (BODY_EVENTS + 2, 0)
    again = table.ingest(iter(events), key="k")
    assert (again.stored, again.duplicates) == (0, BODY_EVENTS + 2)


def test_the_same_call_here_and_at_a_server_adds_nothing(place: tuple[Path, str], served: ServedLake) -> None:
    name = fresh()
    assert served[name].ingest([{"n": 1}, {"n": 2}], key="k").stored == 2
    assert alluvia.connect(place[0])[name].ingest([{"n": 1}, {"n": 2}], key="k").duplicates == 2


def test_positions_count_over_all_bodies(lake: Any) -> None:
    table = lake[fresh()]
    table.ingest({"event_id": "same", "event": "x"})
    events = ({"event_id": str(n) if n < BODY_EVENTS + 1 else "same"} for n in range(BODY_EVENTS + 2))
    assert [each["position"] for each in table.ingest(events).errors] == [BODY_EVENTS + 1]


@pytest.mark.parametrize(
    ("events", "told"),
    [
        ([{"event": "x"}, 1], "expected a dict, or several, got int at position 1"),
        ([{"event": object()}], "the one at position 0 has no form in JSON"),
        ([{"event": b"x"}], "the one at position 0 has no form in JSON"),
        ("text", "expected a dict, or several, got str at position 0"),
    ],
)
def test_what_is_no_event_is_refused(lake: Any, events: Any, told: str) -> None:
    with pytest.raises(Invalid, match=told):
        lake[fresh()].ingest(events)


def test_a_missing_table_is_made_unless_that_is_refused(tmp_path: Path) -> None:
    lake = alluvia.connect(tmp_path)
    with pytest.raises(TableNotFound):
        lake["clicks"].ingest([{"event": "x"}], create=False)
    with pytest.raises(TableNotFound, match="create none"):
        lake["clicks"].ingest([{"event_id": 1, "ts": [1], "event": "x" * 2_000_000, "source": {}}])
    lake.create_events("more")
    with lake.transaction() as tx:
        more = tx.table("more")
        with pytest.raises(Invalid, match="in a transaction, ingest takes a pyarrow table"):
            more.ingest([{"event": "x"}])


def test_the_client_reads_and_writes_as_the_lake_does(served: ServedLake) -> None:
    name = fresh()
    served.sql(f"CREATE TABLE {name} (n BIGINT, text VARCHAR)")
    table = served[name]
    assert table.append([{"n": 1, "text": "a"}, {"n": 2, "text": None}]) == 2
    assert table.append(pa.table({"n": [3], "text": ["c"]})) == 1
    assert (table.count(), table.schema.names) == (3, ["n", "text"])
    assert table.to_arrow(["n"], "text IS NOT NULL -- a comment").to_pydict() == {"n": [1, 3]}
    assert served.sql(f"SELECT n FROM {name} WHERE n = $n", {"n": 2}).to_pylist() == [{"n": 2}]
    assert served.sql(f"SELECT n FROM {name} WHERE text = ?", ["c"]).to_pylist() == [{"n": 3}]
    assert name in served
    assert name in list(served)
    served.sql("CREATE BRANCH b")
    served.on_branch("b").sql(f"DELETE FROM {name}")
    assert (served.on_branch("b")[name].count(), table.count()) == (0, 3)


@pytest.mark.parametrize(
    ("rows", "told"),
    [
        ([{"amount": "x"}], "1 of the rows were rejected, and none stored: .*such as 'amount: expected a number"),
        (
            [{"event_id": "a", "amount": 1}, {"event_id": "a", "amount": 2}],
            "1 of the rows were rejected, and the others stored: .*_rejects has the reasons, such as .*differs",
        ),
    ],
)
def test_appended_events_that_are_rejected_say_why(
    served: ServedLake, place: tuple[Path, str], rows: list[dict[str, Any]], told: str
) -> None:
    name = fresh()
    alluvia.connect(place[0]).create_events(name, {"amount": "long"})
    with pytest.raises(Invalid, match=f"^{told}"):
        served[name].append(rows)
    assert served.sql(f"SELECT count(*) AS n FROM {name}._rejects")["n"].to_pylist() == [1]


def test_a_pivot_without_values_runs_at_a_server(served: ServedLake) -> None:
    name = fresh()
    served.sql(f"CREATE TABLE {name} (event STRING)")
    served.sql(f"INSERT INTO {name} VALUES ('a'), ('b'), ('a')")
    assert served.sql(f"PIVOT {name} ON event USING count(*)").to_pylist() == [{"a": 2, "b": 1}]


@pytest.mark.parametrize(
    ("name", "told"), [("to_pandas", r"use table\.to_arrow\(\)\.to_pandas\(\)"), ("optimize", "send SQL, .*OPTIMIZE")]
)
def test_a_missing_method_names_a_way_that_works(served: ServedLake, name: str, told: str) -> None:
    with pytest.raises(AttributeError, match=told):
        getattr(served["t"], name)
    with pytest.raises(AttributeError, match=r"BEGIN; .*; COMMIT"):
        getattr(served, "transaction")  # noqa: B009 - the type has no such name


NESTED = {"days": [date(2026, 11, 20)], "$date": None}


@pytest.mark.parametrize(
    "value",
    [
        Decimal("0.10"), Decimal("-1E+3"), 2**63, -(2**80), 7, True, "0.10", None, b"\x00\xff", float("inf"), 1.5,
        date(2026, 11, 20), datetime(2026, 11, 20, 10, 30, 0, 7), datetime(2026, 11, 20, 10, tzinfo=UTC),
        datetime(2026, 11, 20, 10, tzinfo=timezone(timedelta(hours=2))), NESTED, {"$date": "x"}, [Decimal("1.5")],
        {"$struct": {"$struct": 1}},
    ],
    ids=repr,
)  # fmt: skip
def test_a_parameter_has_the_same_type_here_and_at_a_server(
    place: tuple[Path, str], served: ServedLake, value: Any
) -> None:
    query = "SELECT typeof($v) AS kind, $v AS value"
    expected = alluvia.connect(place[0]).sql(query, {"v": value})
    assert served.sql(query, {"v": value}).to_pylist() == expected.to_pylist()
    assert served.sql("SELECT typeof(?) AS kind", [value])["kind"] == expected["kind"]


def test_sums_with_decimal_parameters_are_exact_at_a_server(served: ServedLake) -> None:
    name = fresh()
    served.sql(f"CREATE TABLE {name} (amount DECIMAL(9, 2), at TIMESTAMP)")
    served.sql(f"INSERT INTO {name} VALUES (?, ?)", [Decimal("0.10"), datetime(2026, 11, 20)])
    served.sql(
        f"UPDATE {name} SET amount = amount + ?, at = ? + INTERVAL 1 DAY", [Decimal("0.20"), datetime(2026, 1, 1)]
    )
    assert served.sql(f"FROM {name}").to_pylist() == [
        {"amount": Decimal("0.30"), "at": datetime(2026, 1, 2, tzinfo=UTC)}
    ]


def test_what_needs_the_store_says_so_by_name(served: ServedLake) -> None:
    for owner, name, told in (
        (served, "create_table", r'send SQL, as in lake.sql\("CREATE TABLE t \(n BIGINT\)"\), or open'),
        (served, "publish_query", r"send PUT /v1/queries/\{query\}, or open"),
        (served["t"], "history", r"""send SQL, as in lake.sql\("FROM history\('events'\)"\), or open"""),
        (served["t"], "vacuum", "open the lake itself"),
    ):
        with pytest.raises(AttributeError, match=rf"^{name} needs the lake's store, and this is a server: {told}"):
            getattr(owner, name)
    with pytest.raises(AttributeError, match=r"ServedLake has no 'tabels'; did you mean tables\?"):
        getattr(served, "tabels")  # noqa: B009
    with pytest.raises(TableNotFound, match="nosuch"):
        served["nosuch"].count()


def test_a_token_comes_from_the_environment_or_the_call(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    lake = alluvia.connect(tmp_path / "lake")
    lake["clicks"].ingest({"event": "x"})
    bearer = token(lake, grant("read:clicks"))
    with serving(tmp_path / "lake", "--auth", "tokens", quiet=True) as (_, port):
        url = f"http://127.0.0.1:{port}"
        monkeypatch.delenv("ALLUVIA_TOKEN", raising=False)
        with pytest.raises(Forbidden):
            alluvia.connect(url)["clicks"].count()
        assert alluvia.connect(url, token=bearer)["clicks"].count() == 1
        monkeypatch.setenv("ALLUVIA_TOKEN", bearer)
        assert alluvia.connect(url)["clicks"].count() == 1
        with pytest.raises(Forbidden):
            alluvia.connect(url)["clicks"].ingest({"event": "y"})
    with pytest.raises(Invalid, match=r"^ALLUVIA_TOKEN is not sent unencrypted to lake\.example: use https://"):
        alluvia.connect("http://lake.example")
    alluvia.connect("https://lake.example")


OPTIONS = pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"endpoint_url": "x"}, "endpoint_url is not an option of a server"),
        ({"outside": ["/x"]}, "outside is an option of lakes that this process opens"),
        ({"timeout_seconds": 0}, "timeout_seconds: give a number above 0"),
    ],
)


def test_connect_gives_the_client_of_a_server() -> None:
    lake: object = alluvia.connect("HTTPS://lake.example", branch="b", timeout_seconds="3")
    assert isinstance(lake, alluvia.ServedLake)
    assert (lake.uri, lake.branch_name) == ("HTTPS://lake.example", "b")


@OPTIONS
def test_options_of_the_other_way_are_refused(options: dict[str, Any], told: str) -> None:
    with pytest.raises(Invalid, match=told):
        alluvia.connect("http://127.0.0.1:9", **options)


def test_the_page_of_verbs_shows_code_that_runs(place: tuple[Path, str], capsys: pytest.CaptureFixture[str]) -> None:
    text = (Path(__file__).parents[2] / "docs" / "VERBS.md").read_text("utf-8")
    code = text.partition("```python\n")[2].partition("```")[0]
    exec(compile(code.replace("http://localhost:8080", place[1]), "VERBS.md", "exec"), {})
    assert capsys.readouterr().out.splitlines() == ["1 0", "[{'n': 1}]", "1"]


def test_conditions_count_and_limits_end_a_scan(lake: Any) -> None:
    table = lake[fresh()]
    table.ingest([{"event_id": str(n), "event": "even" if n % 2 == 0 else "odd"} for n in range(5)])
    assert (table.count(), table.count(where="event = 'even' -- a comment")) == (5, 3)
    assert [len(table.scan(limit=2).read_all()), len(table.to_arrow(["event"], "event = 'odd'", limit=9))] == [2, 2]
    with pytest.raises(Invalid, match="limit: expected a whole number above 0"):
        table.scan(limit=0)


@pytest.mark.parametrize(
    ("rows", "told"),
    [
        ("x", "rows: expected a pyarrow Table or RecordBatchReader, or a list of dicts, got str"),
        ({"n": 1}, "rows: expected .*, or a list of dicts, got dict"),
        (5, "rows: expected .*, or a list of dicts, got int"),
        ([{"n": 1}, object()], "rows: expected .*, or a list of dicts, got list"),
        ([{"n": 1}, {"n": "x"}], "column n: "),
        ([{"n": object()}], "column n: "),
    ],
)
def test_rows_that_are_no_rows_are_refused_by_name(lake: Any, rows: Any, told: str) -> None:
    name = fresh()
    lake.sql(f"CREATE TABLE {name} (n BIGINT)")
    with pytest.raises(Invalid, match=told):
        lake[name].append(rows)
    assert lake[name].count() == 0


def test_https_to_a_server_that_speaks_http_says_so(place: tuple[Path, str]) -> None:
    with (
        alluvia.connect_server(place[1].replace("http://", "https://"), timeout_seconds=50) as lake,
        pytest.raises(Unavailable, match="the server speaks http: begin the address with http://"),
    ):
        lake.tables()
