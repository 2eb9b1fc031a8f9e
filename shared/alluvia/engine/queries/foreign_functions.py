"""Functions and names of other systems that DuckDB does not know, each with the SQL to write here. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable

from alluvia.delta.schema.names import fold
from alluvia.engine.queries.dialect_hints import CONVERT, TYPOGRAPHIC, instead_of_quotes
from alluvia.engine.queries.tokens import Token, whole_tokens

CANDIDATES_MAX = 3
"""A function may have 45 signatures. The first few show the types that it takes."""

# Each is SQL that runs: `a` and `b` are texts, `n` is a number, `d` a day, `t` a time, `j` JSON, `l` a list.
FUNCTIONS = {
    "add_months": "d + INTERVAL 1 MONTH",
    "adddate": "d + INTERVAL 1 DAY",
    "approx_percentile": "approx_quantile(n, 0.9)",
    "avgif": "avg(n) FILTER (WHERE n > 1)",
    "charindex": "instr(b, 'a')",
    "collect_list": "list(a)",
    "collect_set": "list_distinct(list(a))",
    "convert_timezone": "t AT TIME ZONE 'UTC' AT TIME ZONE 'Europe/Berlin'",
    "convert_tz": "t AT TIME ZONE 'UTC' AT TIME ZONE 'Europe/Berlin'",
    "curdate": "current_date",
    "curtime": "current_time",
    "date_format": "strftime(t, '%d.%m.%Y')",
    "dateadd": "d + INTERVAL 1 DAY",
    "datefromparts": "make_date(2026, 12, 31)",
    "datename": "strftime(d, '%B')",
    "datetime_trunc": "date_trunc('month', t)",
    "div0": "coalesce(n / nullif(n, 0), 0)",
    "endswith": "ends_with(a, 'x')",
    "eomonth": "last_day(d)",
    "explode": "unnest(l)",
    "format_date": "strftime(d, '%d.%m.%Y')",
    "format_timestamp": "strftime(t, '%d.%m.%Y')",
    "formatdatetime": "strftime(t, '%d.%m.%Y')",
    "from_unixtime": "to_timestamp(n)",
    "generate_array": "range(1, 10)",
    "get_json_object": "j ->> '$.key'",
    "getdate": "now()",
    "getutcdate": "now() AT TIME ZONE 'UTC'",
    "grouparray": "list(a)",
    "iif": "if(n > 1, 'yes', 'no')",
    "initcap": "upper(a[1]) || lower(a[2:])",
    "isdate": "try_cast(a AS DATE) IS NOT NULL",
    "isnotnull": "a IS NOT NULL",
    "isnull": "coalesce(a, b)",
    "isnumeric": "try_cast(a AS DOUBLE) IS NOT NULL",
    "json_extract_scalar": "j ->> '$.key'",
    "json_query": "j -> '$.key'",
    "json_unquote": "j ->> '$.key'",
    "locate": "instr(b, 'a')",
    "makedate": "make_date(2026, 12, 31)",
    "mid": "substr(a, 1, 2)",
    "months_between": "date_diff('month', d, other_d)",
    "multiif": "CASE WHEN n > 1 THEN 'a' ELSE 'b' END",
    "newid": "uuid()",
    "nullifzero": "nullif(n, 0)",
    "nvl": "coalesce(a, b)",
    "nvl2": "if(a IS NOT NULL, 1, 2)",
    "parse_date": "strptime(a, '%d.%m.%Y')::DATE",
    "parse_json": "a::JSON",
    "parse_timestamp": "strptime(a, '%d.%m.%Y')",
    "patindex": "instr(b, 'a')",
    "percentile": "quantile_cont(n, 0.9)",
    "rand": "random()",
    "regexp_count": "len(regexp_extract_all(a, 'x'))",
    "regexp_like": "regexp_matches(a, 'x')",
    "regexp_substr": "regexp_extract(a, 'x')",
    "replicate": "repeat(a, 3)",
    "rlike": "regexp_matches(a, 'x')",
    "safe_cast": "try_cast(a AS BIGINT)",
    "safe_divide": "n / nullif(n, 0)",
    "size": "len(l)",
    "space": "repeat(' ', 3)",
    "square": "n * n",
    "startswith": "starts_with(a, 'x')",
    "stdev": "stddev(n)",
    "stdevp": "stddev_pop(n)",
    "str_to_date": "strptime(a, '%d.%m.%Y')::DATE",
    "stuff": "concat(left(a, 1), 'new', substr(a, 3))",
    "subdate": "d - INTERVAL 1 DAY",
    "substring_index": "split_part(a, ',', 1)",
    "sumif": "sum(n) FILTER (WHERE n > 1)",
    "sysdate": "now()",
    "sysdatetime": "now()",
    "sysutcdatetime": "now() AT TIME ZONE 'UTC'",
    "timestamp_seconds": "to_timestamp(n)",
    "timestamp_trunc": "date_trunc('month', t)",
    "timestampadd": "t + INTERVAL 1 DAY",
    "timestampdiff": "date_diff('day', t, other_t)",
    "to_char": "strftime(t, '%d.%m.%Y')",
    "to_date": "strptime(a, '%d.%m.%Y')::DATE",
    "to_number": "CAST(a AS DECIMAL(18, 2))",
    "to_varchar": "strftime(t, '%d.%m.%Y')",
    "todate": "CAST(a AS DATE)",
    "todatetime": "CAST(a AS TIMESTAMP)",
    "toint64": "CAST(a AS BIGINT)",
    "tofloat64": "CAST(a AS DOUBLE)",
    "tostring": "CAST(n AS VARCHAR)",
    "tostartofday": "date_trunc('day', t)",
    "tostartofhour": "date_trunc('hour', t)",
    "tostartofmonth": "date_trunc('month', t)",
    "toyyyymm": "strftime(t, '%Y%m')",
    "truncate": "trunc(n, 2)",
    "try_parse": "try_cast(a AS BIGINT)",
    "try_to_number": "try_cast(a AS DECIMAL(18, 2))",
    "uniq": "count(DISTINCT a)",
    "uniqexact": "count(DISTINCT a)",
    "unix_timestamp": "epoch(t)",
    "utc_timestamp": "now() AT TIME ZONE 'UTC'",
    "var": "var_samp(n)",
    "varp": "var_pop(n)",
    "zeroifnull": "coalesce(n, 0)",
}
NAMES = {
    "getdate": "now()",
    "rownum": "row_number() OVER ()",
    "sysdate": "now()",
    "systimestamp": "now()",
}
OTHER_ARGUMENTS = {
    "datediff": "date_diff('day', d, other_d)",
    "decode": "CASE a WHEN 'x' THEN 1 ELSE 0 END",
    "format": "strftime(t, '%d.%m.%Y')",
    "trunc": "date_trunc('month', t)",
}
"""Functions that DuckDB has, with other arguments than another system's."""
UNITS = frozenset(
    {"year", "quarter", "month", "week", "day", "dayofyear", "weekday", "hour", "minute", "second", "millisecond"}
)
_TAKE_UNITS = frozenset(
    {"date_diff", "date_part", "date_sub", "date_trunc", "datediff", "datepart", "datesub", "datetrunc"}
)

_NO_FUNCTION = re.compile(r"(?:Scalar|Aggregate) Function with name (\S+) does not exist!")
_NO_COLUMN = re.compile(r'Referenced column "(.*)" not found in FROM clause!', re.DOTALL)
_NO_MATCH = re.compile(r"No function matches the given name and argument types '([^\s(]+)\((.*?)\)'")
_NO_ZONE = re.compile(r"Unknown TimeZone '(.*)'!", re.DOTALL)
_CANDIDATE = "\n\t"
_LISTED = f"{_CANDIDATE}Candidate functions:"


def with_advice(message: str, text: str, zones: Iterable[str]) -> str:
    """Return DuckDB's message on a query, with advice where a habit of another system explains the error.

    `text` is what the user wrote; `zones` are the names of time zones, of which the message proposes odd ones.
    Functions with many signatures are listed in part.
    """
    if (missing := _NO_FUNCTION.match(message)) is not None:
        advice = _of_function(missing[1], text)
        return f"{missing[0]} {advice[:1].upper()}{advice[1:]}" if advice else message
    if (column := _NO_COLUMN.match(message)) is not None:
        advice = _of_column(column[1], text)
        return message if advice is None else f"{column[0]} {advice[:1].upper()}{advice[1:]}"
    if (zone := _NO_ZONE.match(message)) is not None:
        return f"{zone[0]} {_of_zone(zone[1], zones)}"
    if (call := _NO_MATCH.match(message)) is not None:
        advice = _of_call(fold(call[1]), call[2].split(", "))
        return _with_few_candidates(message) if advice is None else f"{call[0]}. {advice}"
    return message


def _of_function(name: str, text: str) -> str | None:
    if name.startswith("`"):
        return instead_of_quotes(text)
    if fold(name) in ("convert", "try_convert"):
        return CONVERT
    if fold(name) == "top":
        return "write LIMIT n at the end of the query instead of TOP (n)"
    instead = FUNCTIONS.get(fold(name))
    return None if instead is None else f"write {instead}"


def _of_column(name: str, text: str) -> str | None:
    if set(name) & set(TYPOGRAPHIC):
        return instead_of_quotes(text)
    tokens = whole_tokens(text)
    for at, token in enumerate(tokens):
        if token.kind == "quoted" and text[token.start : token.end] == _quoted(name, '"'):
            return f"If it is a text, write it in single quotes: {_quoted(name, chr(39))}"
        if token.word == fold(name) and _is_unit(tokens, at):
            return f"write the unit as a text: {tokens[at - 2].word}('{name.lower()}', …)"
    instead = NAMES.get(fold(name))
    return None if instead is None else f"write {instead}"


def _is_unit(tokens: list[Token], at: int) -> bool:
    before = [token.word for token in tokens[max(at - 2, 0) : at]]
    return tokens[at].word in UNITS and len(before) > 1 and before[0] in _TAKE_UNITS and before[1] == "("


def _of_zone(name: str, zones: Iterable[str]) -> str:
    wanted = fold(name).replace(" ", "_")
    near = sorted(zone for zone in zones if wanted and fold(zone).rpartition("/")[2] == wanted)
    return f"Write {_quoted(near[0], chr(39))}" if near else "Write a region and a city, as in 'Europe/Berlin'"


def _of_call(name: str, types: list[str]) -> str | None:
    texts = [kind in ("VARCHAR", "STRING_LITERAL") for kind in types]
    if name == "+" and len(types) > 1 and any(texts):
        return "+ adds numbers: write a || b to join texts" + ("" if all(texts) else ", or CAST the text to a number")
    of_time = types[0].startswith(("DATE", "TIMESTAMP"))
    is_foreign = len(types) > 2 if name == "decode" else of_time
    return f"Write {OTHER_ARGUMENTS[name]}" if name in OTHER_ARGUMENTS and is_foreign else None


def _with_few_candidates(message: str) -> str:
    said, listed, candidates = message.partition(_LISTED)
    each = candidates.rstrip().split(_CANDIDATE)[1:]
    if len(each) <= CANDIDATES_MAX:
        return message
    more = f"{_CANDIDATE}and {len(each) - CANDIDATES_MAX} more"
    return said + listed + "".join(f"{_CANDIDATE}{one}" for one in each[:CANDIDATES_MAX]) + more


def _quoted(name: str, mark: str) -> str:
    return mark + name.replace(mark, 2 * mark) + mark
