"""Column chunks that are fetched before DuckDB asks for them: which, how many requests and bytes, and what fails."""

from __future__ import annotations

import io
import threading
import tracemalloc
from collections.abc import Callable
from itertools import count
from random import Random

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from alluvia.clock import SystemClock
from alluvia.delta.data_files.column_chunks import ColumnChunks
from alluvia.engine.queries.named_columns import result_columns
from alluvia.engine.queries.parse import parse
from alluvia.query.process.fetching import first_read
from alluvia.store import Address, open_store
from alluvia.store.caches import range_cache, read_ahead
from alluvia.store.caches.engine_files import EngineFiles
from alluvia.store.caches.read_ahead import ReadAhead
from alluvia.store.caches.served import ServedFile, WantedColumns, name_of

COLUMNS, ROWS, GROUP_ROWS = "abcdefg", 40_000, 10_000
GROUPS = ROWS // GROUP_ROWS
NUMBERS = count()


def parquet() -> bytes:
    """Return a file of four row groups with seven columns of 80 KB each; `a` is in order."""
    chance, data = Random(1), io.BytesIO()
    columns = {
        name: pa.Array.from_buffers(pa.int64(), ROWS, [None, pa.py_buffer(chance.randbytes(8 * ROWS))])
        for name in COLUMNS
    }
    rows = pa.table({**columns, "a": pa.array(range(ROWS), pa.int64())})
    pq.write_table(rows, data, compression="none", use_dictionary=False, row_group_size=GROUP_ROWS)
    return data.getvalue()


DATA = parquet()
METADATA = pq.read_metadata(io.BytesIO(DATA))


def chunk(group: int, column: str) -> tuple[int, int]:
    found = METADATA.row_group(group).column(COLUMNS.index(column))
    return found.data_page_offset, found.data_page_offset + found.total_compressed_size


def served(
    names: str = "", results: str = "", number: int = 0, tail: bytes = DATA[-16384:], size: int = len(DATA)
) -> ServedFile:
    wanted = WantedColumns(tuple(names), tuple(results))
    return ServedFile(name_of(number), Address("memory://x", {}, "k"), 0, size, 0, 0, wanted, tail)


class Fetched:
    """Fetches parts of the file, or fails as `answers` say by their starts, and notes which."""

    def __init__(self) -> None:
        self.parts: list[tuple[int, int]] = []
        self.answers: dict[int, str] = {}

    def __call__(self, _: ServedFile, start: int, end: int) -> bytes | str:
        self.parts.append((start, end))
        return self.answers.get(start) or DATA[start:end]


def asked(ahead: ReadAhead, fetched: Fetched, file: ServedFile, *wanted: tuple[int, str]) -> None:
    """Read chunks as DuckDB does, in this thread, and check what comes."""
    for group, column in wanted:
        start, end = chunk(group, column)
        found = ahead.read(file, start, end)
        assert (found or fetched(file, start, end)) == DATA[start:end]


def test_the_rest_of_a_row_group_is_on_its_way_when_a_second_column_is_read() -> None:
    """Each request ends once all three have begun, so that none can wait for another."""
    all_begun = threading.Barrier(3, timeout=20)

    def fetch(_: ServedFile, start: int, end: int) -> bytes:
        all_begun.wait()
        return DATA[start:end]

    ahead, file = ReadAhead(fetch, ColumnChunks), served("aceg", "ceg")
    assert ahead.read(file, *chunk(0, "a")) is None
    assert ahead.read(file, *chunk(0, "c")) is None
    assert fetch(file, *chunk(0, "c")) == DATA[slice(*chunk(0, "c"))]
    for column in "eg":
        assert ahead.read(file, *chunk(0, column)) == DATA[slice(*chunk(0, column))]
    assert ahead.held_bytes == 0
    ahead.close()


def test_columns_side_by_side_are_one_request() -> None:
    fetched, file = Fetched(), served("abcdg", "bcdg")
    ahead = ReadAhead(fetched, ColumnChunks)
    asked(ahead, fetched, file, (0, "a"), (0, "b"), (0, "c"), (0, "d"), (0, "g"))
    assert sorted(fetched.parts) == [chunk(0, "a"), (chunk(0, "b")[0], chunk(0, "d")[1]), chunk(0, "g")]


@pytest.mark.parametrize("names", ["aceg", ""])
def test_nothing_is_fetched_where_no_row_meets_the_conditions(names: str) -> None:
    """Of one column or of two, of which either may end the reading; also once a row group has gone on."""
    fetched, file = Fetched(), served(names, "eg"[: len(names)])
    ahead = ReadAhead(fetched, ColumnChunks)
    reads = [(0, "a"), (0, "c"), (1, "a"), (2, "a"), (2, "c"), (2, "e"), (2, "g"), (3, "a"), (3, "c")]
    asked(ahead, fetched, file, *reads)
    ahead.close()
    assert sorted(fetched.parts) == sorted(chunk(*read) for read in reads)


def test_columns_are_known_from_the_row_groups_before() -> None:
    """Names alone say too much (`g`), or nothing; row groups that are read to their end are fetched at once."""
    for names, results in (("aceg", "ceg"), ("", "")):
        fetched, file = Fetched(), served(names, results)
        ahead = ReadAhead(fetched, ColumnChunks)
        asked(ahead, fetched, file, *((group, column) for group in range(GROUPS - 1) for column in "ace"))
        assert ahead.read(file, *chunk(GROUPS - 1, "a")) is None
        ahead.close()
        later = [part for part in fetched.parts if part[0] >= chunk(0, "g")[1]]
        last = {chunk(GROUPS - 1, column) for column in "ce"}
        assert set(later) - last == {chunk(group, column) for group in range(1, GROUPS - 1) for column in "ace"}
        assert len(later) == len(set(later))


def test_no_more_than_a_limit_is_held(monkeypatch: pytest.MonkeyPatch) -> None:
    size = chunk(0, "a")[1] - chunk(0, "a")[0]
    monkeypatch.setattr(read_ahead, "AHEAD_BYTES", 2 * size)
    fetched = Fetched()
    ahead = ReadAhead(fetched, ColumnChunks)
    for number in range(20):  # of each file a query may leave what it has not read
        asked(ahead, fetched, served("aceg", "ceg", number), (0, "a"), (0, "c"))
        assert ahead.held_bytes <= 2 * size
    assert len(fetched.parts) <= 2 * 20 + 2
    ahead.close()
    asked(ahead, fetched, served("aceg", "ceg", 99), (0, "a"), (0, "c"))
    assert fetched.parts[-2:] == [chunk(0, "a"), chunk(0, "c")]  # and nothing is fetched any more


def test_columns_with_dots_and_with_fields_are_followed() -> None:
    """`a.b` may be a column, or a field of one. Of one with fields, those that a row group was read of are fetched."""
    rows, out = 20_000, io.BytesIO()
    values = pa.Array.from_buffers(pa.int64(), rows, [None, pa.py_buffer(Random(3).randbytes(8 * rows))])
    fields = pa.StructArray.from_arrays([values, values, values], ["x", "y", "z"])
    table = pa.table({"u.a": values, "u.b": values, "u.c": values, "noise": values, "s": fields})
    pq.write_table(table, out, compression="none", use_dictionary=False, row_group_size=5000)
    data, metadata = out.getvalue(), pq.read_metadata(out)
    wanted = WantedColumns(("u.a", "u.c", "s"), ("u.c", "s"))
    file = ServedFile(name_of(0), Address("memory://x", {}, "k"), 0, len(data), 0, 0, wanted, data[-16384:])
    parts: list[int] = []

    def fetch(_: ServedFile, start: int, end: int) -> bytes:
        parts.append(start)
        return data[start:end]

    ahead = ReadAhead(fetch, ColumnChunks)
    taken = []
    for group in range(4):
        for at in (0, 2, 4, 6):  # `u.a`, `u.c`, `s.x` and `s.z`
            column = metadata.row_group(group).column(at)
            start = column.data_page_offset
            found = ahead.read(file, start, start + column.total_compressed_size)
            assert found in (None, data[start : start + column.total_compressed_size])
            taken.append(found is not None)
    ahead.close()
    assert taken == [False] * 4 + [False, False, True, True] + [False, True, True, True] * 2
    assert len(parts) == len(set(parts))


@pytest.mark.parametrize("why", ["missing", "changed", "refused"])
def test_a_failure_is_that_of_the_read(why: str) -> None:
    fetched, file = Fetched(), served("aceg", "ceg")
    ahead = ReadAhead(fetched, ColumnChunks)
    fetched.answers[chunk(0, "e")[0]] = why
    asked(ahead, fetched, file, (0, "a"), (0, "c"))
    assert ahead.read(file, *chunk(0, "e")) == why
    asked(ahead, fetched, file, (0, "g"))


def test_a_part_that_is_too_short_with_others_is_asked_for_alone() -> None:
    fetched, file = Fetched(), served("abcd", "bcd")
    ahead = ReadAhead(fetched, ColumnChunks)
    fetched.answers[chunk(0, "b")[0]] = "short"
    assert ahead.read(file, *chunk(0, "a")) is None
    assert ahead.read(file, *chunk(0, "b")) is None
    ahead.close()


def test_a_longer_footer_is_taken_from_what_duckdb_reads_of_it() -> None:
    length = int.from_bytes(DATA[-8:-4], "little")
    fetched, file = Fetched(), served("aceg", "ceg", tail=DATA[-100:])
    ahead = ReadAhead(fetched, ColumnChunks)
    asked(ahead, fetched, file, (0, "a"), (0, "c"))
    assert len(fetched.parts) == 2
    ahead.note_footer(file, len(DATA) - 8 - length, DATA[-8 - length : -8])
    asked(ahead, fetched, file, (1, "a"), (1, "c"), (1, "e"), (1, "g"))
    assert len(fetched.parts) == 2 + 4
    ahead.close()


def test_a_footer_is_taken_from_the_end_that_duckdb_reads_first() -> None:
    """As of the many files of a large table whose ends are not fetched ahead."""
    fetched, file = Fetched(), served("aceg", "ceg", tail=b"")
    ahead = ReadAhead(fetched, ColumnChunks)
    ahead.note_footer(file, len(DATA) - 16384, DATA[-16384:])
    assert ahead.read(file, *chunk(0, "a")) is None
    asked(ahead, fetched, file, (0, "c"), (0, "e"), (0, "g"))
    assert sorted(fetched.parts) == [chunk(0, column) for column in "ceg"]
    assert ahead.read(file, *chunk(1, "a")) is None
    assert ahead.read(file, *chunk(1, "c")) is None
    assert ahead.held_bytes > 0
    ahead.close()


def test_a_footer_in_memory_counts_as_well() -> None:
    uri = f"memory://ahead-{next(NUMBERS)}"
    store = open_store(uri, SystemClock())
    store.put("k", DATA)
    file = served("aceg", "ceg", tail=b"")._replace(address=Address(uri, {}, "k"), store=next(NUMBERS))
    for columns in ("", "ac"):
        files = EngineFiles([file], ColumnChunks)
        files.read_range(file, len(DATA) - 16384, len(DATA))
        for column in columns:
            files.read_range(file, *chunk(0, column))
        held = files._ahead.held_bytes
        files.end()
    assert held == sum(end - start for start, end in (chunk(0, "e"), chunk(0, "g")))


@pytest.mark.parametrize("names", ["a", "aceg"])
def test_memory_does_not_grow_with_the_number_of_files(monkeypatch: pytest.MonkeyPatch, names: str) -> None:
    monkeypatch.setattr(read_ahead, "FOOTERS_BYTES", 40_000)
    monkeypatch.setattr(read_ahead, "COLUMNS_MAX", 200)
    ahead = ReadAhead(lambda _, start, end: bytes(end - start), ColumnChunks)
    tracemalloc.start()
    try:
        for number in range(500):
            file = served(names, names[1:], number, tail=b"")
            footer = bytearray(DATA[-16384:])  # each has its own
            ahead.note_footer(file, len(DATA) - len(footer), bytes(footer))
            for column in names:
                ahead.read(file, *chunk(0, column))
        assert tracemalloc.get_traced_memory()[0] < 1_000_000
    finally:
        tracemalloc.stop()
        ahead.close()


def damaged() -> list[bytes]:
    """Return ends of files that no writer makes: without sense, cut, with a false length, with other bytes in them."""
    length, chance = int.from_bytes(DATA[-8:-4], "little"), Random(2)
    footer = DATA[-8 - length :]
    ends = [
        b"",
        b"PAR1",
        bytes(4) + b"PAR1",
        b"\xff" * 12 + b"PAR1",
        footer[8:],
        b"\xff" * (len(footer) - 8) + footer[-8:],
    ]
    for _ in range(200):
        changed = bytearray(footer)
        for _ in range(chance.randrange(1, 8)):
            changed[chance.randrange(length)] = chance.randrange(256)
        ends.append(bytes(changed))
    return ends


def test_a_damaged_footer_is_read_once() -> None:
    tried: list[bytes] = []

    def refuse(footer: bytes, size: int, known: int) -> ColumnChunks:
        tried.append(footer)
        return ColumnChunks(footer[5:], size, known)

    fetched = Fetched()
    ahead = ReadAhead(fetched, refuse)
    reads = [(group, column) for group in range(GROUPS) for column in "aceg"]
    asked(ahead, fetched, served("aceg", "ceg"), *reads)
    assert fetched.parts == [chunk(*read) for read in reads]
    assert len(tried) == 1


def test_a_hostile_footer_makes_nothing_be_fetched_outside_the_file() -> None:
    for tail in damaged():
        fetched, file = Fetched(), served(COLUMNS, COLUMNS, tail=tail)
        ahead = ReadAhead(fetched, ColumnChunks)
        for group in range(GROUPS):
            asked(ahead, fetched, file, *((group, column) for column in "abceg"))
        assert all(4 <= start < end <= len(DATA) for start, end in fetched.parts)
        assert ahead.held_bytes <= read_ahead.AHEAD_BYTES
        ahead.close()


def test_a_footer_that_names_one_large_chunk_many_times_is_fetched_once() -> None:
    rows, data = pa.table({f"c{at}": [1] for at in range(500)}), io.BytesIO()
    pq.write_table(rows, data, row_group_size=1)
    body = data.getvalue()
    calls: list[int] = []

    def fetch(_: ServedFile, start: int, end: int) -> bytes:
        calls.append(end - start)
        return bytes(end - start)

    wanted = WantedColumns(tuple(rows.column_names), tuple(rows.column_names))
    address = Address("memory://x", {}, "k")
    size = 10**15  # as the log of others may say
    for number in range(10):
        ahead = ReadAhead(fetch, ColumnChunks)
        file = ServedFile(name_of(number), address, 0, size, 0, 0, wanted, body)
        metadata = pq.read_metadata(io.BytesIO(body)).row_group(0)
        for at in (0, 400):
            first = metadata.column(at)
            start = first.dictionary_page_offset or first.data_page_offset
            ahead.read(file, start, start + first.total_compressed_size)
        ahead.close()
        assert ahead.held_bytes <= read_ahead.AHEAD_BYTES
    assert sum(calls) <= 10 * len(body)


QUERIES = [
    "SELECT sum(a), sum(c), sum(g) FROM {}",
    "SELECT sum(b), sum(d), sum(g) FROM {}",
    "SELECT a, c, g FROM {} ORDER BY d LIMIT 5",
    "SELECT a, c, g FROM {} LIMIT 5",
    "SELECT sum(b), max(d), min(f) FROM {} WHERE a >= 0",
    "SELECT sum(b), max(d), min(f) FROM {} WHERE a % 2 = 0 AND e > 0",
    "SELECT b, d, f FROM {} WHERE e = 5",
    "SELECT b, d, f FROM {} WHERE a = 12345",
    "SELECT sum(f), sum(d), sum(b) FROM {} WHERE a BETWEEN 12000 AND 31000",
    "SELECT count(*) FROM {} WHERE g > 0 OR c < 0",
    "SELECT b, d, f FROM {} WHERE a % 2 = 0 AND e = 5",
    "SELECT b, d, f FROM {} WHERE a > 5 AND e > 0 AND e < 0",
    "SELECT sum(hash(t)) FROM {} t WHERE a % 1000 = 7",
    "SELECT sum(x.b), sum(y.d) FROM {} x, {} y WHERE x.g = y.g AND y.f > 0",
]


def run(query: str, threads: int, follow: Callable[[EngineFiles], None]) -> tuple[object, int, int]:
    """Run a query over three files; return its answer, and the requests and bytes that it took."""
    number = next(NUMBERS)
    uri = f"memory://ahead-{number}"
    store = open_store(uri, SystemClock())
    names = sorted(each for each in COLUMNS if any(form in query for form in (f"({each})", f" {each} ", f" {each},")))
    results = result_columns(parse(query.replace("{}", "t")).root)
    wanted = WantedColumns() if results is None else WantedColumns(tuple(names), results)
    files = []
    for at in range(3):
        store.put(f"{at}", DATA)
        address = Address(uri, {}, f"{at}")
        tail = DATA[-first_read(len(DATA)) :]
        modified_ms = 1_700_000_000_000
        files.append(ServedFile(name_of(at), address, number, len(DATA), modified_ms, 0, wanted, tail))
    served_files = EngineFiles(files, ColumnChunks)
    parts: list[int] = []
    get = served_files._got

    def noted(file: ServedFile, start: int, end: int) -> bytes | str:
        if served_files._held(file, start, end) is None:
            parts.append(end - start)
        return get(file, start, end)

    served_files._got = noted  # type: ignore[method-assign]
    served_files._ahead = ReadAhead(noted, ColumnChunks)
    follow(served_files)
    with duckdb.connect() as connection:
        connection.execute(f"SET threads = {threads}")
        connection.register_filesystem(served_files)
        answer = sorted(connection.execute(query.replace("{}", f"read_parquet({[f.name for f in files]})")).fetchall())
    served_files.end()
    return answer, len(parts), sum(parts)


def without(files: EngineFiles) -> None:
    files._ahead.close()
    files._ahead.read = lambda *_: None  # type: ignore[method-assign]


@pytest.mark.parametrize("query", QUERIES)
def test_queries_take_no_more_requests_nor_bytes_than_duckdb_asks_for(query: str) -> None:
    answer, requests, size = run(query, 1, lambda _: None)
    expected, most, most_bytes = run(query, 1, without)
    assert answer == expected
    assert requests <= most
    assert size <= most_bytes + range_cache.GAP_BYTES * (most - requests)  # which cost less than a request


@pytest.mark.parametrize("query", [query for query in QUERIES if "LIMIT" not in query])
def test_threads_get_the_same_rows(query: str) -> None:
    answer, _, _ = run(query, 8, lambda _: None)
    assert answer == run(query, 1, without)[0]
