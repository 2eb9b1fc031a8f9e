"""Costs follow what changes, not how many tables there are. `python -m benchmarks many_tables` has 10,000 of them."""

from __future__ import annotations

from tests.many_tables import ManyTables

TABLES, BUSY, COMMITS = 120, 3, 20


def test_notifications_cost_what_the_tables_cost_that_changed() -> None:
    few, many = ManyTables(BUSY, BUSY), ManyTables(TABLES, BUSY)
    costs = []
    for lake in (few, many):
        notifications = lake.commit(COMMITS)
        assert len(notifications) == BUSY * 2
        costs.append(lake.merged(notifications))
        found = {name for kind, key in lake.store.keys if (name := key.partition("/")[0]).startswith("t")}
        assert found == set(lake.busy)
    assert costs[0] == costs[1]
    assert costs[0].requests["put"] <= BUSY * 5


def test_a_sweep_looks_at_no_table_and_an_idle_table_costs_few_requests_a_day() -> None:
    lake = ManyTables(TABLES, 0)
    sweep, messages = lake.swept()
    assert sweep.requests == {"list": 1}
    assert (sweep.sqs, len(messages)) == (TABLES // 10, TABLES)
    idle = lake.merged(messages)
    assert idle.requests["put"] == 0
    assert idle.requests["list"] <= 2 * TABLES
    assert lake.vacuumed(messages).requests["put"] == 0
