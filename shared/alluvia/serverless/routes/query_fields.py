"""Fields of queries' requests, and headers of their answers, as they are read, sent and documented."""

from __future__ import annotations

from alluvia.query import formats, parameters
from alluvia.serverless.routes.fields import AT_LEAST_ONE, COUNT, FLAG, TEXT, Json, RequestField, in_header

JSON_TYPE, FORM_TYPE = "application/json", "application/x-www-form-urlencoded"
TEXT_TYPES = ("text/plain", "application/sql")
ROWS, VERSIONS, RESULT_BYTES = "Alluvia-Rows", "Alluvia-Versions", "Alluvia-Result-Bytes"
FILES_READ, BYTES_READ, ELAPSED = "Alluvia-Files-Read", "Alluvia-Bytes-Read", "Alluvia-Elapsed-Ms"
REQUESTS, DOLLARS = "Alluvia-Requests", "Alluvia-Dollars"
CACHE = "Alluvia-Cache"
CACHE_STATES = HIT, MISS, OFF = "hit", "miss", "off"
JOB_NUMBERS = {
    "rows": ROWS,
    "result_bytes": RESULT_BYTES,
    "files_read": FILES_READ,
    "bytes_read": BYTES_READ,
    "elapsed_ms": ELAPSED,
    "requests": REQUESTS,
    "dollars": DOLLARS,
}
"""Fields of a job that is done, by the headers that an answer would have."""
EXPIRED = "expired"
"""The state of a job whose result is gone."""
LINK, ERROR = "link", "error"
SYNC, ASYNC = "sync", "async"
QUERY = RequestField(
    "query",
    TEXT,
    "The text of one SELECT, or of several statements.",
    'send {"query": "SELECT …"}, with the text of one SELECT or of several statements',
)
PARAMETERS = RequestField(
    "parameters",
    {"type": ["array", "object"]},
    'Values of ?, in a list, or of $name, in an object. Types that JSON lacks have a tag: {"$decimal": "0.10"}, '
    "$date, $timestamp, $timestamp_ntz (without a time zone), $binary (base64) and $double (NaN, Infinity).",
    "send a list, with the values of ?, or an object, with those of $name",
)
FORMATS: Json = {"enum": [each.name.lower() for each in formats.FORMATS]}
FORMAT = RequestField(
    "format",
    TEXT,
    "The format of the answer. Without it, Accept decides.",
    "send the name of one, such as csv",
    documented=FORMATS,
)
DRY_RUN = RequestField(
    "dry_run", FLAG | {"default": False}, "Answer with the files that the query would read, and read nothing."
)
LARGE = RequestField(
    "large",
    TEXT | {"enum": [LINK, ERROR], "default": LINK},
    "The answer for a result that is too large for one: a link, or 413.",
    f"send {LINK}, for a link to a result that is too large for an answer, or {ERROR}",
)
MODE = RequestField(
    "mode",
    TEXT | {"enum": [SYNC, ASYNC], "default": SYNC},
    "Whether to answer with the rows, or with a job.",
    f"send {ASYNC}, for a job whose result you fetch later, or {SYNC}",
)
MAX_BYTES = RequestField("max_bytes", AT_LEAST_ONE, "Refuse a query that would read more bytes of data files.")
MAX_SECONDS = RequestField("max_seconds", AT_LEAST_ONE, "Stop a query that takes longer.")
MAX_RESULT_BYTES = RequestField("max_result_bytes", AT_LEAST_ONE, "Refuse a result with more bytes.")
WRITING_FIELDS = (
    RequestField("delimiter", TEXT, "The delimiter of CSV. Without it, a comma; with a decimal comma, a semicolon."),
    RequestField(
        "decimal_separator",
        TEXT,
        "Of numbers in CSV. A comma, for numbers such as 12,50.",
        documented={"enum": [".", ","], "default": "."},
    ),
    RequestField("bom", FLAG | {"default": False}, "Begin CSV with a byte order mark, by which Excel knows UTF-8."),
)
"""How CSV is written. The first two are those of uploads."""
FIELDS = (QUERY, PARAMETERS, FORMAT, DRY_RUN, LARGE, MODE, MAX_BYTES, MAX_SECONDS, MAX_RESULT_BYTES, *WRITING_FIELDS)
"""Fields of a query's request, in the order of `QueryRequest`."""
OTHER_NAMES = {"q": QUERY.name, "params": PARAMETERS.name}
"""Names that Tinybird and others have for the same."""
PARAM = "param_"
"""Before a parameter's name in a form or a query string, as in ClickHouse."""
MAX_BYTES_HEADER = in_header("Alluvia-Max-Bytes", MAX_BYTES.description, AT_LEAST_ONE)
MAX_SECONDS_HEADER = in_header("Alluvia-Max-Seconds", MAX_SECONDS.description, AT_LEAST_ONE)
LIMIT_HEADERS = (MAX_BYTES_HEADER, MAX_SECONDS_HEADER)
"""Headers that set the same limits: where the query string has the parameters of a published query, or for a proxy."""
QUERY_HEADER = "Alluvia-Query"
AFTER = RequestField("after", TEXT | {"default": ""}, "Names that come after this one: `next` of the page before.")
LIMIT = RequestField(
    "limit",
    AT_LEAST_ONE | {"maximum": 1000, "default": 100},
    "How many names are looked at.",
    "{value} must be a number from 1 to 1000",
)
VERSION = RequestField(
    parameters.VERSION, COUNT, "An earlier version of it.", "{value} must be the number of a version"
)
LINK_TOKEN = RequestField(
    parameters.LINK_TOKEN,
    TEXT,
    "The signed part of a link, which `alluvia link` makes: the query, its fixed parameters, and the expiry.",
    missing="this address is not a link: `alluvia link NAME` makes one, which has it",
)
TABLE = RequestField("table", TEXT, "This table alone.")
KEY = RequestField("key", TEXT, "The columns by which a changed row is found again, with commas between.")
