"""Keys of answers: another one for everything that can change the answer."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, date, datetime
from decimal import Decimal
from itertools import product
from typing import Any

import alluvia
from alluvia.commit.intents import pending, with_claims
from alluvia.query.identity import Identity, TableRead, identify

READ = TableRead("t", "id", 3)
MADE_OF = Identity("FROM t", (READ,))


def test_what_a_key_covers() -> None:
    others = [
        *[replace(READ, table="u"), replace(READ, table_id="other"), replace(READ, version=4)],
        *[replace(READ, where=("a", "b")), replace(READ, where=("b", "a")), replace(READ, hide=("a", "b"))],
    ]
    reads: list[tuple[TableRead, ...]] = [(), (READ,), (READ, READ), *((each,) for each in others)]
    parts = product(reads, ["FROM t", "FROM u"], ["FROM t", "FROM  t"], ["CSV", "JSON"])
    keys = [Identity(text, read).key(query, None, form) for read, text, query, form in parts]
    assert len(set(keys)) == len(keys) == len(reads) * 8


def test_no_two_values_of_a_parameter_look_alike() -> None:
    moment = datetime(2026, 1, 1, tzinfo=UTC)
    values: list[Any] = [
        *[1, 1.0, True, "1", Decimal(1), b"1", None, float("nan"), "null", "nan", [1], (1,), {"a": 1}, "[1]"],
        *[moment, moment.replace(tzinfo=None), date(2026, 1, 1), str(moment), 2**70, float(2**70), ""],
    ]
    given: list[Any] = [{"n": value} for value in values] + [[value] for value in values] + [None, [], {}]
    keys = [MADE_OF.key("q", parameters, "CSV") for parameters in given]
    assert len(set(keys)) == len(keys)
    assert MADE_OF.key("q", {"a": 1, "b": 2}, "CSV") == MADE_OF.key("q", {"b": 2, "a": 1}, "CSV")


def test_a_transaction_that_is_being_carried_out_makes_no_answer_to_keep() -> None:
    """It changes the rows of a version, and not its number."""
    lake = alluvia.connect("memory://")
    for name in ("a", "b"):
        lake.create_table(name, {"n": "long"})
    found = identify(lake.catalog, "FROM a")
    assert found is not None
    assert [(each.table, each.version) for each in found.reads] == [("a", 0)]
    with lake.transaction() as tx:
        tx.table("a").append([{"n": 1}])
        tx.table("b").append([{"n": 1}])
    settled = identify(lake.catalog, "FROM a JOIN b USING (n)")
    assert settled is not None
    claimed = lake["a"].snapshot(version=1)
    decided = with_claims(claimed.state, pending(claimed.state.domains))
    assert (decided.version, len(decided.files)) == (claimed.version, len(claimed.files) + 1)
    assert pending(decided.domains)  # by which such a version is known
    assert identify(lake.catalog, "FROM a(version => 1)") is None
