"""Prepared statements: where they run after their transactions have ended, and what their values may take."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa
import pytest

from alluvia.api.lake import Lake
from alluvia.engine.duck.failures import QueryTooCostly
from alluvia.errors import Invalid
from alluvia.flight.commands import Commands
from alluvia.flight.messages import new, packed, unpacked
from alluvia.flight.statements import FlightCaller, StatementRules, Statements
from alluvia.flight.statuses import HandleNotFound
from alluvia.query.limits import QueryLimits
from alluvia.sql.grammar.nodes import Query
from alluvia.sql.grammar.statements import SqlStatement, parse

HERE, THERE = (FlightCaller("key", None, peer) for peer in ("ipv4:127.0.0.1:1", "ipv4:127.0.0.1:2"))
COMMIT, ROLL_BACK = 1, 2


def allowed(text: str) -> Sequence[SqlStatement]:
    found = parse(text)
    return [] if len(found) == 1 and isinstance(found[0].node, Query) else found


@pytest.fixture
def commands(lake: Lake) -> Iterator[Commands]:
    lake.create_table("t", {"id": "long"})
    rules = StatementRules(QueryLimits(), 1 << 20, True, allowed)
    found = Commands(Statements(lake, lambda: rules), lake.clock)
    yield found
    found.close()


def begun(commands: Commands, caller: FlightCaller) -> bytes:
    found: bytes = unpacked(commands.begin(caller))[1].transaction_id
    return found


def prepared_in_one_that_has_ended(commands: Commands) -> bytes:
    transaction = begun(commands, HERE)
    found = commands.prepare("INSERT INTO t VALUES (1)", transaction, HERE)
    commands.end(transaction, ROLL_BACK, HERE)
    handle: bytes = unpacked(found)[1].prepared_statement_handle
    return handle


def run(commands: Commands, handle: bytes, caller: FlightCaller) -> None:
    name = "CommandPreparedStatementUpdate"
    commands.update(name, new(name, prepared_statement_handle=handle), caller)


def test_it_commits_by_itself_where_the_caller_has_no_transaction(commands: Commands, lake: Lake) -> None:
    other = FlightCaller("other", None, HERE.peer)
    begun(commands, other)
    run(commands, prepared_in_one_that_has_ended(commands), HERE)
    assert lake["t"].count() == 1


def test_it_runs_in_the_next_transaction_of_its_connection(commands: Commands, lake: Lake) -> None:
    handle = prepared_in_one_that_has_ended(commands)
    begun(commands, THERE)
    transaction = begun(commands, HERE)
    run(commands, handle, HERE)
    assert lake["t"].count() == 0
    commands.end(transaction, COMMIT, HERE)
    assert lake["t"].count() == 1


@pytest.mark.parametrize("places", [(THERE,), (THERE, THERE), (HERE, HERE)])
def test_it_is_refused_where_the_transaction_may_be_another(
    commands: Commands, lake: Lake, places: Sequence[FlightCaller]
) -> None:
    """As after a reconnect, or behind a proxy with connections of its own."""
    handle = prepared_in_one_that_has_ended(commands)
    transactions = [begun(commands, place) for place in places]
    with pytest.raises(Invalid, match="prepare it again"):
        run(commands, handle, HERE)
    for transaction in transactions:
        commands.end(transaction, COMMIT, HERE)
    assert lake["t"].count() == 0


def bound(commands: Commands, text: str, values: pa.Table) -> bytes:
    handle: bytes = unpacked(commands.prepare(text, b"", HERE))[1].prepared_statement_handle
    commands.bind(new("CommandPreparedStatementUpdate", prepared_statement_handle=handle), values, HERE)
    return handle


def test_values_that_are_bound_count_as_held(commands: Commands) -> None:
    values = pa.table({"1": [b"x" * (9 << 20)]})
    handles = [bound(commands, "DELETE FROM t WHERE id = ?", values) for _ in range(8)]
    with pytest.raises(HandleNotFound):
        commands.prepared.get(HERE.key, handles[0])
    assert commands.prepared.get(HERE.key, handles[1]).runs == 1


def test_the_answer_of_each_row_of_values_is_bounded(commands: Commands, lake: Lake) -> None:
    text = "INSERT INTO t VALUES ($n); SELECT repeat('x', $n) AS rows_of_text"
    for sizes, fits in (([2 << 20, 1], False), ([3, 2], True)):
        handle = bound(commands, text, pa.table({"n": sizes}))
        command = packed("CommandPreparedStatementQuery", prepared_statement_handle=handle)
        if fits:
            assert commands.info(command, HERE)[0].names == ["rows_of_text"]
        else:
            with pytest.raises(QueryTooCostly, match="the answer has more than"):
                commands.info(command, HERE)
    assert lake["t"].count() == 2


def test_counts_of_rows_are_added_up(commands: Commands, lake: Lake) -> None:
    lake["t"].append([{"id": number} for number in (1, 1, 2, 3)])
    handle = bound(commands, "DELETE FROM t WHERE id = ?", pa.table({"1": [1, 2, 7]}))
    name = "CommandPreparedStatementUpdate"
    found = commands.update(name, new(name, prepared_statement_handle=handle), HERE)
    assert found == new("DoPutUpdateResult", record_count=3).SerializeToString()
