"""Changes of columns that SQL of the lake would not survive are refused before anything is committed."""

from __future__ import annotations

import re
from itertools import count
from typing import Any

import pytest

from alluvia.access.claims import TokenClaims
from alluvia.access.registry import note_issued
from alluvia.access.rights import Rights
from alluvia.api.lake import Lake
from alluvia.clock import ManualClock
from alluvia.errors import Invalid
from alluvia.events.ingest.envelope import split
from alluvia.events.ingest.pipeline import ingest_batch
from alluvia.events.ingest.values import Limits
from alluvia.sql.run import execute
from alluvia.store import MemoryStore
from tests.access import grant

ARRIVAL_US = 1_700_000_000_000_000
NUMBERS = count()
OLD = """{"event_id":"a","event":"paid","currency":"EUR","n":1}
{"event_id":"b","event":"paid","currency":"USD","n":2}
{"event_id":"c","event":"sent","currency":"EUR"}"""
FIELD = "(properties->>'currency')"


@pytest.fixture
def lake() -> Lake:
    lake = Lake(MemoryStore(f"uses-{next(NUMBERS)}"), ManualClock(ARRIVAL_US, 7))
    lake.create_events("o")
    lake.create_table("rates", {"currency": "string", "rate": "double"})
    found = split(OLD.encode(), content_type=None, content_encoding=None, limits=Limits())
    ingest_batch(lake.catalog, "o", found.events, (), arrival_us=ARRIVAL_US)
    return lake


BREAKS = {
    "a group": f"SELECT {FIELD} AS currency, count(*) AS n FROM o GROUP BY currency",
    "a filter below": f"SELECT count(*) AS n FROM (SELECT lower({FIELD}) AS currency FROM o WHERE currency = 'eur')",
    "another item": f"SELECT lower({FIELD}) AS currency, currency || '!' AS loud FROM o",
    "an order by expression": f"SELECT {FIELD} AS currency FROM o ORDER BY lower(currency)",
    "a window": f"SELECT lower({FIELD}) AS currency FROM o QUALIFY row_number() OVER (PARTITION BY currency) = 1",
    "a star with the name": f"SELECT *, lower({FIELD}) AS currency FROM o",
    "a star below": f"SELECT lower({FIELD}) AS currency FROM (SELECT * FROM o) WHERE currency = 'eur'",
    "a common table expression": f"WITH x AS (FROM o) SELECT lower({FIELD}) AS currency FROM x WHERE currency = 'x'",
    "a column of another table": "SELECT currency, event FROM o JOIN rates ON event = currency",
    "a natural join": "SELECT ts FROM o NATURAL JOIN (SELECT 'paid' AS event, currency FROM rates)",
    "a union": "SELECT * FROM o UNION ALL SELECT event_id, ts, event, source, properties, received_at FROM o",
    "a column from outside": f"SELECT (SELECT max(o.ts) FROM o WHERE {FIELD} = currency) AS last FROM rates",
}
KEEPS = {
    "by the expression": f"SELECT {FIELD} AS currency, count(*) AS n FROM o GROUP BY {FIELD} ORDER BY currency",
    "by position": f"SELECT {FIELD} AS currency, count(*) AS n FROM o GROUP BY 1 HAVING currency = 'EUR'",
    "over a subquery": f"WITH x AS (SELECT {FIELD} AS currency FROM o) SELECT currency FROM x GROUP BY currency",
    "another table": f"SELECT (SELECT max(rate) FROM rates WHERE currency = 'EUR') AS r FROM o WHERE {FIELD} > ''",
    "qualified": f"SELECT rates.currency AS c FROM o JOIN rates ON rates.currency = {FIELD}",
    "a text": "SELECT count(*) AS n FROM o WHERE event = 'currency'",
}


@pytest.mark.parametrize("why", BREAKS)
def test_a_column_that_takes_the_place_of_another_name_is_refused(lake: Lake, why: str) -> None:
    lake.publish_query("pq", BREAKS[why])
    version = lake["o"].version
    with pytest.raises(Invalid, match=r"adding currency would break or change published query pq: .*force"):
        lake["o"].evolve(add={"currency": "string"})
    with pytest.raises(Invalid, match="published query pq"):
        lake.sql("ALTER TABLE o ADD COLUMN currency VARCHAR")
    assert (lake["o"].version, lake["o"].schema.names.count("currency")) == (version, 0)
    assert lake.sql("ALTER TABLE o ADD COLUMN currency VARCHAR FORCE").to_pylist()[0]["version"] == version + 1


@pytest.mark.parametrize("why", KEEPS)
def test_queries_that_mean_the_same_go_on(lake: Lake, why: str) -> None:
    lake.publish_query("pq", KEEPS[why])
    before = lake.sql(KEEPS[why]).to_pylist()
    lake["o"].evolve(add={"currency": "string"})
    key = str
    assert sorted(lake.sql(KEEPS[why]).to_pylist(), key=key) == sorted(before, key=key)


def test_each_use_is_named_also_by_way_of_views(lake: Lake) -> None:
    lake.sql("CREATE VIEW wide AS SELECT * FROM o")
    lake.sql(f"CREATE VIEW broken AS SELECT {FIELD} AS currency, count(*) AS n FROM wide GROUP BY currency")
    lake.sql(f"CREATE VIEW fine AS SELECT {FIELD} AS currency FROM wide")
    lake.publish_query("of_view", "SELECT n FROM broken WHERE n > $least", {"least": "long"})
    lake.publish_query("grouped", f"SELECT {FIELD} AS currency FROM wide WHERE currency = $c", {"c": "string"})
    lake.create_rollup("r", f"SELECT {FIELD} AS currency, count(*) AS n FROM o GROUP BY currency")
    lake["r"].refresh()
    rows = lake.sql("FROM r_live ORDER BY ALL").to_pylist()
    with pytest.raises(Invalid) as refused:
        lake["o"].evolve(add={"currency": "string"})
    named = set(re.findall(r"(?:view|published query|rollup|token) \w+(?=:)", str(refused.value)))
    assert named == {"view broken", "published query grouped"}
    evolved = lake["o"].evolve(add={"currency": "string"}, force=True)
    assert {"view broken", "rollup r", "published query grouped"} <= set(evolved.named_in)
    assert lake.sql("FROM r_live ORDER BY ALL").to_pylist() == rows


def test_a_text_that_is_wrong_already_stops_nothing(lake: Lake) -> None:
    lake.create_table("gone", {"currency": "string"})
    lake.sql("CREATE VIEW old AS SELECT o.event, gone.currency FROM o, gone")
    lake.drop_table("gone")
    assert lake["o"].evolve(add={"currency": "string"}).named_in == ("view old",)


def test_columns_that_stored_sql_needs_are_not_dropped_or_renamed(lake: Lake) -> None:
    lake["o"].evolve(add={"currency": "string", "n": "long"})
    lake.sql("CREATE VIEW by_column AS SELECT currency FROM o")
    lake.sql("CREATE VIEW by_key AS SELECT properties->>'currency' AS c FROM o")
    lake.sql("CREATE VIEW other AS SELECT count(*) AS n FROM o")
    lake.create_rollup("r", "SELECT properties->>'currency' AS c, count(*) AS k FROM o GROUP BY 1")
    lake.publish_query("pq", "SELECT lower(currency) AS currency FROM o WHERE currency = 'EUR'")
    version = lake["o"].version
    for drop in (
        lambda: lake["o"].evolve(drop=["currency"]),
        lambda: lake.sql("ALTER TABLE o DROP COLUMN currency"),
    ):
        with pytest.raises(Invalid, match="dropping currency would break or change") as refused:
            drop()
        named = re.findall(r"(?:view|published query|rollup) \w+(?=:)", str(refused.value))
        assert named == ["view by_column", "view by_key", "rollup r", "published query pq"]
    with pytest.raises(Invalid, match="renaming or dropping currency would") as refused:
        lake["o"].evolve(rename={"currency": "money"})
    assert "by_key" not in str(refused.value)
    assert lake["o"].version == version
    lake["o"].evolve(drop=["n"])
    lake.sql("ALTER TABLE o DROP COLUMN currency FORCE")
    assert "currency" not in lake["o"].schema.names


def test_plain_tables_too(lake: Lake) -> None:
    lake.sql("CREATE VIEW v AS SELECT upper(currency) AS code FROM rates WHERE code = 'EUR'")
    changes: list[dict[str, Any]] = [
        {"add": {"code": "string"}},
        {"drop": ["currency"]},
        {"rename": {"currency": "money"}},
    ]
    for change in changes:
        with pytest.raises(Invalid, match="view v: "):
            lake["rates"].evolve(**change)
    lake["rates"].evolve(add={"day": "date"}, drop=["rate"])


def test_a_change_in_a_transaction_is_refused_as_well(lake: Lake) -> None:
    lake.sql(f"CREATE VIEW v AS {BREAKS['a group']}")
    with pytest.raises(Invalid, match="view v: "):
        lake.sql("BEGIN; ALTER TABLE o ADD COLUMN currency VARCHAR; COMMIT")
    assert "currency" not in lake["o"].schema.names


def test_cascade_names_force(lake: Lake) -> None:
    with pytest.raises(Invalid, match=r"CASCADE is not supported: .*FORCE"):
        lake.sql("ALTER TABLE o DROP COLUMN event CASCADE")


def test_a_row_filter_of_a_token_needs_its_columns(lake: Lake) -> None:
    lake["o"].evolve(add={"currency": "string"})
    for name, where in (("eu", "currency = 'EUR'"), ("other", "event = 'paid'")):
        rights = Rights((grant("read:o", where=where),))
        note_issued(lake.store, lake.clock, TokenClaims(name, name, 0, ARRIVAL_US // 1_000_000 + 60, rights), "key")
    changes: list[dict[str, Any]] = [{"drop": ["currency"]}, {"rename": {"currency": "money"}}]
    for change in changes:
        with pytest.raises(Invalid, match="token eu: its row filter") as refused:
            lake["o"].evolve(**change)
        assert "other" not in str(refused.value)
    lake["o"].evolve(drop=["currency"], force=True)


def test_a_caller_with_fewer_rights_sees_no_names(lake: Lake) -> None:
    lake.sql(f"CREATE VIEW secret_view AS {BREAKS['a group']}")
    rights = Rights((grant("read:o write:o admin:o"),))
    with pytest.raises(Invalid, match=r"would break or change 1 stored query.*FORCE") as refused:
        execute(lake, "ALTER TABLE o ADD COLUMN currency VARCHAR", rights=rights)
    assert "secret_view" not in str(refused.value)
