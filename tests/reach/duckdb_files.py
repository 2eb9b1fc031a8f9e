"""Run DuckDB's own test files (sqllogictest) as SQL over lake tables, and compare each answer with DuckDB's own.

The files are DuckDB's, and are fetched by hand. Each statement runs twice: on tables of a lake, where every INSERT is a
commit with files of its own, and on a plain database of the DuckDB that this library is pinned to. The verdicts:

| Verdict | Meaning |
|---|---|
| right | every query that ran gave the same rows |
| refused | the same, but the lake refused a statement by name; after a refused write, the rest of the file is not run |
| not applicable | nothing was compared: the file needs what a lake does not have, from its first statements |
| wrong | other rows than DuckDB's |
| crash | an error that is not one of this library's |

    python -m tests.reach.duckdb_files FOLDER [--only PREFIX …] [--write]

FOLDER is a checkout of duckdb/duckdb; `--write` keeps the verdicts in `duckdb_verdicts.txt`, beside this module.
"""

from __future__ import annotations

import argparse
import math
import re
import sys
import uuid
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from threading import Timer
from typing import Any

import duckdb
import pyarrow as pa

import alluvia
from alluvia.errors import AlluviaError
from alluvia.query.limits import QueryLimits
from alluvia.sql.run import execute

RIGHT, REFUSED, NOT_APPLICABLE, WRONG, CRASH = "right", "refused", "not applicable", "wrong", "crash"
VERDICTS = Path(__file__).with_name("duckdb_verdicts.txt")
SECONDS_MAX = 20
LOOPS_MAX = 50
STATEMENTS_MAX = 400
"""No more are run of a file: what comes later is mostly loops over the same."""
_HARMLESS = re.compile(
    r"\s*(PRAGMA\s+(enable_verification|disable_verification|verify_\w+|threads|enable_profiling)"
    r"|SET\s+threads\s*=\s*\d+\s*;?\s*$)",
    re.IGNORECASE,
)
_SESSION = re.compile(
    r"\s*(PRAGMA|SET|RESET|ATTACH|DETACH|USE|LOAD|INSTALL|BEGIN|COMMIT|ROLLBACK|START|PREPARE|EXECUTE|DEALLOCATE"
    r"|CHECKPOINT|EXPORT|IMPORT|COPY|CALL)\b",
    re.IGNORECASE,
)
_VARYING = re.compile(
    r"\b(random|uuid|gen_random_uuid|now|current_\w+|today|nextval|pragma_\w+|duckdb_\w+|rowid|version|explain|sample"
    r"|tablesample|typeof|pg_typeof|any_value|first|last|arbitrary|approx\w*|reservoir\w*|show|describe|summarize"
    r"|information_schema|sqlite_master|pg_catalog|storage_info|list|array_agg|string_agg|group_concat|listagg"
    r"|histogram|hash|row_number)\b",
    re.IGNORECASE,
)
"""What may answer otherwise each time, or by the order of rows or the kind of storage."""
_WRITES = re.compile(
    r"\s*(CREATE|INSERT|UPDATE|DELETE|MERGE|DROP|ALTER|TRUNCATE)\b"
    r"|.*\b(INSERT\s+(OR\s+\w+\s+)?INTO|UPDATE\s+\S+\s+SET|DELETE\s+FROM|MERGE\s+INTO)\b",
    re.IGNORECASE | re.DOTALL,
)
"""Rows that differ each time, and numbers that a lake stores as DECIMAL(38, 0), of which a median is whole."""
_MADE_UP = re.compile(
    r"\b(random|setseed|\w*uuid|now|current_\w+|today|nextval|\w*sample|reservoir\w*|u?hugeint)\b", re.IGNORECASE
)
_REAL = re.compile(r"\b(real|float4?)\b", re.IGNORECASE)
"""DuckDB casts DECIMAL to REAL to six digits or so, where a lake stores the REAL that is nearest."""
_LOOPS = ("loop", "foreach", "concurrentloop", "concurrentforeach")
_HAVE = ("parquet", "json", "icu", "core_functions", "skip_reload", "no_extension_autoloading")


@dataclass(frozen=True)
class Statement:
    """One record of a file: `expect` is ok, error, maybe or query."""

    line: int
    expect: str
    sql: str


class NotApplicable(Exception):
    """A file needs something that a lake does not have."""


@dataclass
class Outcome:
    """What came of a file: its verdict, how many queries were compared, and what was refused or wrong, with lines."""

    verdict: str = NOT_APPLICABLE
    compared: int = 0
    notes: list[str] = field(default_factory=list)


def statements(text: str) -> Iterator[Statement]:
    """Yield the records of a file, with loops unrolled. Raises `NotApplicable` for directives of another world."""
    lines = text.replace("\r\n", "\n").split("\n")
    yield from _block(lines, 0, len(lines), {})


def _block(lines: Sequence[str], at: int, end: int, names: dict[str, str]) -> Iterator[Statement]:
    skipping = False
    while at < end:
        words = _filled(lines[at], names).split()
        at += 1
        if not words or words[0].startswith("#"):
            continue
        if words[0] == "halt":
            return
        if words[0] in _LOOPS:
            close = _end_of_loop(lines, at - 1, end)
            for value in _values_of_loop(words):
                yield from _block(lines, at, close, {**names, words[1]: value})
            at = close + 1
        elif words[0] in ("statement", "query"):
            start, at = at, _end_of_record(lines, at, end)
            if not skipping:
                yield _record(words, [_filled(line, names) for line in lines[start:at]], start)
        elif words[0] == "mode":
            skipping = words[1] == "skip" or (skipping and words[1] != "unskip")
        elif words[0] not in ("hash-threshold", "tags") and (words[0] != "require" or words[1] not in _HAVE):
            raise NotApplicable(" ".join(words[:2]))


def _values_of_loop(words: Sequence[str]) -> Sequence[str]:
    values = [str(n) for n in range(int(words[2]), int(words[3]))] if "loop" in words[0] else list(words[2:])
    if words[0].startswith("concurrent") or any(value.startswith(("<", "!")) for value in values):
        raise NotApplicable(words[0])
    return values[:LOOPS_MAX]


def _end_of_record(lines: Sequence[str], at: int, end: int) -> int:
    while at < end and lines[at].strip():
        at += 1
    return at


def _record(words: Sequence[str], lines: Sequence[str], start: int) -> Statement:
    """Return a record without what it expects: DuckDB itself is asked for that."""
    if any(re.fullmatch(r"con\w*\d+", word) for word in words[2:]):
        raise NotApplicable("several connections")
    sql = []
    for line in lines:
        if line.strip() == "----":
            break
        if not line.startswith("#"):
            sql.append(line)
    return Statement(start, words[1] if words[0] == "statement" else "query", "\n".join(sql))


def _filled(line: str, names: dict[str, str]) -> str:
    for name, value in names.items():
        line = line.replace(f"${{{name}}}", value).replace(f"{{{name}}}", value)
    return line


def _end_of_loop(lines: Sequence[str], at: int, end: int) -> int:
    depth = 0
    for place in range(at, end):
        word = (lines[place].split() or [""])[0]
        depth += word in _LOOPS
        depth -= word == "endloop"
        if not depth:
            return place
    raise NotApplicable("a loop without an end")


def run_text(text: str) -> Outcome:
    """Run a file's text and return what came of it."""
    outcome = Outcome()
    try:
        found = [each for _, each in zip(range(STATEMENTS_MAX), statements(text), strict=False)]
    except (NotApplicable, ValueError, IndexError) as error:
        outcome.notes.append(f"not applicable: {error}")
        return outcome
    digits = 4 if _REAL.search(text) else 12
    lake, plain = alluvia.connect(f"memory://duckdb-{uuid.uuid4()}"), duckdb.connect(":memory:")
    plain.execute("SET TimeZone = 'UTC'")
    for statement in found:
        if not _HARMLESS.match(statement.sql) and not _step(statement, lake, plain, outcome, digits):
            break
    plain.close()
    if outcome.verdict not in (WRONG, CRASH) and outcome.compared:
        outcome.verdict = REFUSED if outcome.notes else RIGHT
    return outcome


def _step(
    statement: Statement, lake: alluvia.Lake, plain: duckdb.DuckDBPyConnection, outcome: Outcome, digits: int
) -> bool:
    """Run one statement on both; False where the file cannot go on."""
    where = f"line {statement.line}"
    made_up = _WRITES.match(statement.sql) and _MADE_UP.search(statement.sql)
    if made_up or _SESSION.match(statement.sql):
        what = "rows that differ each time, or a HUGEINT" if made_up else "a setting or statement of a session"
        outcome.notes.append(f"{where}: {what}")
        return False
    timer = Timer(SECONDS_MAX, plain.interrupt)
    timer.start()
    try:
        wanted = plain.execute(statement.sql).to_arrow_table()
    except (duckdb.Error, RuntimeError, pa.ArrowException):
        wanted = None
    finally:
        timer.cancel()
    try:
        given = execute(lake, statement.sql, limits=QueryLimits(timeout_seconds=SECONDS_MAX))
    except AlluviaError as error:
        if wanted is None:
            return True
        outcome.notes.append(f"{where}: {str(error).splitlines()[0][:120]}")
        return not _WRITES.match(statement.sql)
    except Exception as error:  # noqa: BLE001 - whatever it is, it is what this looks for
        outcome.verdict = CRASH
        outcome.notes.append(f"{where}: {type(error).__name__}: {str(error)[:200]}")
        return False
    if wanted is None:
        outcome.notes.append(f"{where}: DuckDB refuses what the lake does")
        return not _WRITES.match(statement.sql)
    if statement.expect != "query" or _WRITES.match(statement.sql) or _VARYING.search(statement.sql):
        return True
    outcome.compared += 1
    if not same_rows(wanted, given, digits):
        outcome.verdict = WRONG
        outcome.notes.append(f"{where}: other rows: {statement.sql[:200]!r}")
        return False
    return True


def same_rows(wanted: pa.Table, given: pa.Table, digits: int) -> bool:
    """Whether two answers have the same rows in some order, floating-point numbers to so many digits."""
    return wanted.num_columns == given.num_columns and _rows(wanted, digits) == _rows(given, digits)


def _rows(table: pa.Table, digits: int) -> list[tuple[str, ...]]:
    columns = [[_cell(value, digits) for value in _values(column)] for column in table.columns]
    return sorted(zip(*columns, strict=True))


def _values(column: pa.ChunkedArray) -> list[Any]:
    """Return values that compare: times as numbers, since Python has not all of them, and TIMESTAMP has a zone here."""
    if pa.types.is_timestamp(column.type):
        return column.cast(pa.timestamp("us", column.type.tz), safe=False).cast(pa.int64()).to_pylist()
    if pa.types.is_date32(column.type):
        return column.cast(pa.int32()).to_pylist()
    try:
        return column.to_pylist()
    except (ValueError, OverflowError):
        return [str(column.cast(pa.string()) if not pa.types.is_nested(column.type) else column)] * len(column)


def _cell(value: Any, digits: int) -> str:
    if isinstance(value, float) and not math.isnan(value):
        return f"{value:.{digits}g}"
    if isinstance(value, datetime):
        return str(value.replace(tzinfo=None))
    if isinstance(value, list):
        return f"[{', '.join(_cell(part, digits) for part in value)}]"
    if isinstance(value, dict):
        return f"{{{', '.join(f'{name}: {_cell(part, digits)}' for name, part in value.items())}}}"
    return str(value)


def main() -> None:
    """Run the files of a checkout and print their verdicts."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--only", nargs="*", default=["test/sql/"])
    parser.add_argument("--write", action="store_true")
    asked = parser.parse_args()
    known = {name: verdict for verdict, name in (line.split("\t") for line in _lines())}
    counts: Counter[str] = Counter()
    for path in sorted(asked.folder.rglob("*.test")):
        name = path.relative_to(asked.folder).as_posix()
        if not name.startswith(tuple(asked.only)):
            continue
        outcome = run_text(path.read_text("utf-8", "replace"))
        known[name] = outcome.verdict
        counts[outcome.verdict] += 1
        sys.stdout.write(f"{outcome.verdict}\t{name}\t{outcome.compared}\t{'; '.join(outcome.notes[-2:])}\n")
        sys.stdout.flush()
    sys.stdout.write(f"{dict(counts)}\n")
    if asked.write:
        VERDICTS.write_text("".join(f"{verdict}\t{name}\n" for name, verdict in sorted(known.items())), "utf-8")


def _lines() -> list[str]:
    return VERDICTS.read_text("utf-8").splitlines() if VERDICTS.exists() else []


if __name__ == "__main__":
    main()
