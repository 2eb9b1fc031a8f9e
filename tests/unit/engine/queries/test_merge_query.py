from __future__ import annotations

import pyarrow as pa
import pytest

from alluvia.engine.queries.merge_query import read_merge_query
from alluvia.errors import Invalid

SCHEMA = pa.schema({"user": pa.string(), "day": pa.date32(), "hits": pa.int64(), "s": pa.struct({"user": pa.string()})})


@pytest.mark.parametrize(
    ("query", "keys"),
    [
        ("SELECT user, day, sum(hits) AS hits FROM source GROUP BY user, day", ("user", "day")),
        ("SELECT USER, x.day AS day, sum(hits) AS hits FROM source AS x GROUP BY 1, x.Day", ("user", "day")),
        ("SELECT user, min(day) AS day FROM source GROUP BY user, date_trunc('week', day)", ("user",)),
        ("SELECT lower(user) AS user, day FROM source GROUP BY user, day", ("day",)),
        ("SELECT day AS user, user AS day FROM source GROUP BY user, day", ()),
        ("SELECT user, day FROM source GROUP BY user, 9", ("user",)),
        ("SELECT s.user, day FROM source GROUP BY s.user, day", ("day",)),
        ("SELECT DISTINCT * FROM source", ("user", "day", "hits", "s")),
        ("SELECT DISTINCT user, day + 1 AS day, hits, s FROM source", ("user", "hits", "s")),
        ("SELECT DISTINCT ON (day, lower(user)) * FROM source ORDER BY day, user", ("day",)),
    ],
)
def test_keys_are_the_columns_that_rows_share_and_keep(query: str, keys: tuple[str, ...]) -> None:
    assert read_merge_query(query).keys(SCHEMA) == keys


@pytest.mark.parametrize(
    ("query", "reason"),
    [
        ("SELECT user FROM source GROUP BY user LIMIT 3", "it cannot use LIMIT: which rows it keeps would depend"),
        ("SELECT user FROM source GROUP BY user HAVING sum(hits) > 3", "cannot use HAVING: a group could pass once"),
        ("SELECT user FROM source GROUP BY user ORDER BY user", "cannot use ORDER BY: only DISTINCT ON needs it"),
        ("SELECT user, now() AS ts FROM source GROUP BY user", r"cannot use now\(\): its value changes"),
        ("SELECT user, current_date AS day FROM source GROUP BY user", "cannot use current_date: its value changes"),
        ("SELECT user, random() AS hits FROM source GROUP BY user", r"cannot use random\(\)"),
        ("SELECT user, first(day) AS day FROM source GROUP BY user", r"cannot use first\(\): say the order"),
        (
            "SELECT user, row_number() OVER () AS hits FROM source GROUP BY user",
            "cannot use a window function: use DIST",
        ),
        ("SELECT user FROM source, source AS other GROUP BY user", "cannot use a join"),
        ("SELECT user FROM (FROM source) GROUP BY user", "cannot use a subquery"),
        ("SELECT user FROM source UNION FROM source", "cannot use UNION"),
        ("SELECT * EXCLUDE (day) FROM source GROUP BY user", r"can use \* only alone"),
        ("SELECT sum(hits) AS hits FROM source", "must have either GROUP BY or DISTINCT"),
        ("SELECT * FROM source", "must have either GROUP BY or DISTINCT"),
        ("SELECT user FROM other GROUP BY user", "must read source, which stands for the table"),
        ("SELECT user FROM source(version => 1) GROUP BY user", "must read source"),
        ("SELECT user FROM read_csv('/etc/passwd') GROUP BY user", "must read source"),
        ("SELECT getenv('HOME') AS user FROM source GROUP BY 1", r"getenv\(\) is not allowed"),
        ("DELETE FROM source", "only a SELECT can be run here, not DELETE"),
        ("EXPLAIN SELECT user FROM source GROUP BY user", "write the SELECT alone"),
    ],
)
def test_shapes_that_no_merge_can_run_are_refused(query: str, reason: str) -> None:
    with pytest.raises(Invalid, match=f"^property alluvia.merge_query: .*{reason}"):
        read_merge_query(query)
