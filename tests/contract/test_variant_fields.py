"""A query has the same answer, with the same names, whether files hold `properties` as text or as a variant."""

from __future__ import annotations

import re

import pytest

from alluvia.api.lake import Lake
from alluvia.clock import ManualClock
from alluvia.engine.queries.field_reads import find_field_reads
from alluvia.engine.queries.parse import parse
from alluvia.engine.queries.references import find_references
from alluvia.store import MemoryStore

COLUMNS = "event_id STRING NOT NULL, ts TIMESTAMP, event STRING, properties STRING, s STRUCT(properties STRING)"
VARIANT = "TBLPROPERTIES ('alluvia.properties' = 'variant')"


@pytest.fixture(scope="module")
def lake() -> Lake:
    made = Lake(MemoryStore("variant-fields"), ManualClock(1_700_000_000_000_000, 7))
    for name, properties in (("t", ""), ("v", VARIANT)):
        made.sql(f"CREATE TABLE {name} ({COLUMNS}) {properties}")
        made[name].ingest(
            [
                {
                    "event_id": f"e{n}",
                    "event": "hit",
                    "f": n / 4,
                    "n": n,
                    "o": {"a": n, "k": None},
                    "user_id": f"u{n % 9}",
                }
                if n % 100
                else {"event_id": f"e{n}", "f": "many", "n": str(n), "odd one": n, "user_id": None}
                for n in range(1200)
            ]
        )
        made[name].ingest([{"event_id": "small", "n": None, "user id": True, "user_id": "u1"}, {"event_id": "none"}])
    made.sql("CREATE TABLE others (user_id STRING, properties STRING)")
    made.sql("INSERT INTO others VALUES ('u1', '{\"user_id\": \"other\"}')")
    return made


AS_COLUMNS = [
    "SELECT count(DISTINCT properties->>'user_id') FROM X",
    "SELECT properties->>'user_id', count(*) AS c FROM X GROUP BY 1 ORDER BY 2 DESC, 1 LIMIT 3",
    "SELECT properties->>'user_id' AS u, sum((properties->>'n')::DOUBLE) FROM X GROUP BY ALL ORDER BY ALL",
    "SELECT X.properties->>'user_id', max(X.properties->>'f') FROM X GROUP BY X.properties->>'user_id' ORDER BY 1",
    "SELECT a.properties ->> '$.user_id' FROM X AS a WHERE (a.properties->>'n') = '7' AND (a.properties->>'f') < '5'",
    "SELECT count(*) FROM X a JOIN X b ON (a.properties->>'n') = (b.properties->>'n') WHERE b.properties->>'n' > '7'",
    "SELECT event_id, Properties->>'n' FROM X WHERE event_id IN ('e0', 'e1', 'small', 'none') ORDER BY event_id",
    "SELECT properties->>'odd one', properties->>'user id' FROM X WHERE properties->>'odd one' IS NOT NULL ORDER BY 1",
    "SELECT properties->>'o', properties->>'missing' FROM X WHERE event_id = 'e5'",
    "WITH a AS (SELECT properties->>'user_id' AS u FROM X) SELECT u, count(*) FROM a GROUP BY u ORDER BY u LIMIT 2",
    "SELECT count(*) FROM X WHERE EXISTS (SELECT 1 AS one FROM X b WHERE (b.properties->>'n') = (X.properties->>'f'))",
    "SELECT (SELECT max(properties->>'n') AS m FROM X) AS m",
    "SELECT CASE WHEN properties->>'n' > '5' THEN 'x' || (properties->>'user_id') END AS c FROM X ORDER BY 1 LIMIT 3",
    "SELECT count(*) FILTER (WHERE properties->>'user_id' = 'u1') FROM X",
    "SELECT event_id FROM X ORDER BY properties->>'n' DESC NULLS LAST, event_id LIMIT 3",
    "SELECT event_id FROM X UNION ALL SELECT properties->>'user_id' AS u FROM X ORDER BY 1 LIMIT 4",
]
AS_TEXT = [
    "SELECT * FROM X WHERE properties->>'n' = '7'",
    "FROM X WHERE properties->>'n' = '7'",
    "SELECT X FROM X WHERE properties->>'n' = '7'",
    "SELECT properties, properties->>'n' FROM X WHERE event_id = 'e100'",
    "SELECT COLUMNS('prop.*') FROM X WHERE properties->>'n' = '7'",
    "SELECT properties FROM (SELECT properties->>'user_id' AS properties FROM X) ORDER BY 1 LIMIT 1",
    "SELECT p.properties->>'n' FROM (SELECT properties FROM X WHERE event_id = 'e8') AS p",
    "SELECT json_extract_string(properties, 'n'), properties->>'n' FROM X WHERE event_id = 'e9'",
    "SELECT properties->>'$.o.a', properties->>'n' FROM X WHERE event_id = 'e9'",
    "SELECT properties->>'/o/a' FROM X WHERE event_id = 'e9'",
    "SELECT s.properties->>'n' FROM X LIMIT 1",
    "SELECT count(*) FROM X a NATURAL JOIN X b WHERE a.properties->>'n' = '7'",
    "SELECT a.p->>'user_id' FROM X AS a(e, t, ev, p, s) WHERE e = 'e3'",
    "SELECT list_transform([properties], lambda properties: properties->>'n') FROM X WHERE event_id = 'e9'",
    "SELECT count(*) FROM (SELECT properties->>'user_id' FROM X)",
    "SELECT u FROM (SELECT properties->>'user_id' FROM X) AS a(u) ORDER BY u LIMIT 1",
    "SELECT sum(length(properties)), count(properties->'o') FROM X",
    "SUMMARIZE SELECT properties->>'user_id' FROM X",
    "PIVOT X ON event IN ('hit') USING count(properties->>'user_id') GROUP BY event_id ORDER BY event_id LIMIT 2",
]
AS_TEXT_LATER = [
    "SELECT (properties)->>'user_id' FROM X WHERE event_id = 'e9'",
    "SELECT properties /* of */ ->> 'user_id' FROM X WHERE event_id = 'e9'",
    "SELECT o.properties->>'user_id', x.properties->>'n' FROM X x, others o WHERE x.event_id = 'e9'",
]


def of(query: str, table: str) -> str:
    return re.sub(r"\bX\b", table, query)


@pytest.mark.parametrize("query", [*AS_COLUMNS, *AS_TEXT, *AS_TEXT_LATER])
def test_the_answer_is_that_of_text(lake: Lake, query: str) -> None:
    texts, variants = (lake.sql(of(query, name)) for name in "tv")
    assert variants.schema.names == [re.sub(r"\bt\b", "v", name) for name in texts.schema.names]
    assert variants.schema.types == texts.schema.types
    assert [tuple(row.values()) for row in variants.to_pylist()] == [tuple(row.values()) for row in texts.to_pylist()]


@pytest.mark.parametrize("query", [*AS_COLUMNS, *AS_TEXT])
def test_fields_are_read_as_columns_where_that_changes_nothing(query: str) -> None:
    root = parse(of(query, "v")).root
    assert bool(find_field_reads(root, find_references(root))) is (query in AS_COLUMNS)
