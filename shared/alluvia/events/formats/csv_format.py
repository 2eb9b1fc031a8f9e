"""Events whose fields are text: CSV and forms. Pure.

CSV (`csv_text`) has a header row: each row is an event, each cell the text of a field. Empty cells are fields that are
missing. Typed columns read the text of their cells (`Given.text`), for which the empty text is null. The delimiter is
what the source declares, else what the header shows.

A form (application/x-www-form-urlencoded) is one event; a repeated field is a list. `curl -d` sends JSON under this
type, too: a body that begins as JSON does, or has no `=`, is read as JSON.
"""

from __future__ import annotations

import io
import re
from collections import defaultdict
from itertools import chain
from typing import TYPE_CHECKING
from urllib.parse import parse_qsl

from alluvia.errors import Invalid
from alluvia.events.formats import json_format
from alluvia.events.formats.body_format import BodyFormat, SentBody
from alluvia.events.formats.charset import charset_of, codec_named
from alluvia.events.formats.csv_text import CsvFault, CsvText
from alluvia.events.formats.events import Events, content_key, text_given
from alluvia.events.ingest.envelope import BOM, refused
from alluvia.events.ingest.pointed_numbers import PointedCells
from alluvia.events.ingest.values import Split

if TYPE_CHECKING:
    from alluvia.events.ingest.values import Limits

_NO_HEADER = re.compile(r";\s*header\s*=\s*\"?absent\b", re.IGNORECASE)
_NO_ROWS = "the CSV has a header and no rows: send a row per line (curl -d strips line ends, --data-binary keeps them)"


def read(sent: SentBody, limits: Limits) -> Split:
    """Take the rows of a body. A row that cannot be read or does not fit the header becomes a reject with its text.

    Where a broken quote in a later line of a row hides where the next row begins, the reject has all that follows.

    A header without rows is a reject, because what `curl -d` makes of a file looks so: one line of all its rows.
    """
    if not sent.body.removeprefix(BOM).strip():
        return Split([], [])
    if _NO_HEADER.search(sent.headers.get("content-type") or ""):
        return refused(sent.body, "the first row must name the fields: header=absent is not supported")
    try:
        text = _text_of(sent)
    except Invalid as error:
        return refused(sent.body, str(error))
    if fault := text.header_fault():
        return refused(sent.body, fault)
    events = Events(sent, limits)
    points = None if text.delimiter == "," or sent.options.get("decimal_separator") else PointedCells()
    for row in text.rows:
        cells = text.cells(row)
        if isinstance(cells, CsvFault):
            follows = text.rest() if cells.end_is_unknown and text.has_several_lines(row) else b""
            events.reject(cells.reason, (row + follows).rstrip(b"\r\n"))
        elif len(cells) != len(text.names):
            reason = f"the row has {len(cells)} fields, its header {len(text.names)}"
            events.reject(reason, row.rstrip(b"\r\n"))
        else:
            fields = zip(text.names, cells, strict=True)
            value: dict[str, object] = {name: cell for name, cell in fields if cell is not None}
            events.add(value, text_given(value))
            if points is not None:
                points.see(value)
        if events.full:
            break
    if not len(events):
        return refused(sent.body, _NO_ROWS)
    return events.split() if points is None else points.noted(events.split())


def _text_of(sent: SentBody) -> CsvText:
    """Return the text of a body. Raises `Invalid` for a charset that is not known, or that the body does not have."""
    decimal_comma = sent.options.get("decimal_separator") == ","
    delimiter = sent.options.get("delimiter", "")
    body, charset = sent.body, charset_of(sent.headers.get("content-type"))
    if charset and (codec := codec_named(charset)):
        try:
            body = body.decode(codec).encode()
        except UnicodeError:
            raise Invalid(f"not valid {charset}, the charset in Content-Type") from None
    return CsvText(io.BytesIO(body), sent.media_type, delimiter, decimal_comma=decimal_comma)


def _key(sent: SentBody, _found: Split) -> str:
    """Return the key of the rows, whether or not they have times: a table in a file comes twice only by mistake."""
    try:
        text = _text_of(sent)
    except Invalid:
        return content_key([sent.body])
    return content_key(chain([text.start_of_parts()], text.rows))


FORMAT = BodyFormat(read, _key)


_FIELDS_MAX = 10_000


def read_form(sent: SentBody, limits: Limits) -> Split:
    """Take the form of a body."""
    if sent.body.lstrip()[:1] in (b"{", b"[") or b"=" not in sent.body:
        return json_format.read(sent, limits)
    try:
        pairs = parse_qsl(
            sent.body.strip().decode(), keep_blank_values=True, errors="strict", max_num_fields=_FIELDS_MAX
        )
    except UnicodeDecodeError:
        return refused(sent.body, "the form is not valid UTF-8")
    except ValueError:
        return refused(sent.body, f"the form has more than {_FIELDS_MAX} fields")
    values: defaultdict[str, list[str]] = defaultdict(list)
    for name, text in pairs:
        values[name].append(text)
    event: dict[str, object] = {name: texts[0] if len(texts) == 1 else texts for name, texts in values.items()}
    events = Events(sent, limits)
    events.add(event, text_given(event))
    return events.split()


FORM = BodyFormat(read_form)
