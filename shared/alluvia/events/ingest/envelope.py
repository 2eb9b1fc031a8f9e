"""From a request body to events: one object, an array, or NDJSON; plain or compressed. Pure.

The body itself decides its format: a JSON array contains one event per element, a JSON object is one event, and in any
other body each non-blank line is an event. The content type matters only for broken bodies: with an NDJSON type, each
broken line is a reject of its own. Nothing is dropped: anything that is not an event becomes a reject with its bytes
(decompressed, without surrounding whitespace; or the body as sent, if it could not be decompressed).
"""

from __future__ import annotations

import re
from itertools import count, repeat
from typing import TYPE_CHECKING

import orjson

from alluvia.errors import Invalid
from alluvia.events.ingest.columnar_batch import MANY, EventParts, LineBlock, batch_of, blocks_of
from alluvia.events.ingest.columnar_parser import LINES_MIN, SPACE
from alluvia.events.ingest.compression import TooLarge, UnknownEncoding, inflate
from alluvia.events.ingest.identity import own_reject_id
from alluvia.events.ingest.values import TOO_MANY_BYTES, TOO_MANY_EVENTS, Limits, RawEvent, Reject, Split, raw_events
from alluvia.json_values.jsontext import (
    SeveralValues,
    decode_all,
    decode_if_plain,
    describe,
    encode_all,
    split_array,
    split_stream,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

NDJSON_TYPES = (
    "application/x-ndjson",
    "application/ndjson",
    "application/jsonl",
    "application/x-jsonlines",
    "application/jsonlines",
)
_BETWEEN = re.compile(rb"\}[ \t\r\n]*,[ \t\r\n]*\{")
_A_LINE = ": send one object per line (curl -d strips line ends, --data-binary keeps them)"
_HEAD_BYTES = 1 << 20
BOM = b"\xef\xbb\xbf"


def split(body: bytes, *, content_type: str | None, content_encoding: str | None, limits: Limits) -> Split:
    """Take a request body apart. An empty body gives neither events nor rejects.

    A body over a limit, damaged gzip and an unknown encoding become one reject that holds the body as sent.
    """
    text = inflated(body, content_encoding, limits)
    return text if isinstance(text, Split) else split_json(text, content_type, limits)


def inflated(body: bytes, content_encoding: str | None, limits: Limits) -> bytes | Split:
    """Return the body after decompression, or the reject that a body over a limit or a damaged one becomes."""
    if len(body) > limits.body_bytes:
        reason = TOO_MANY_BYTES.format(what="body", size=len(body), limit=limits.body_bytes)
        return refused(body, reason, too_large=True)
    try:
        return inflate(body, content_encoding, limits.inflated_bytes)
    except Invalid as error:
        unsupported = isinstance(error, UnknownEncoding)
        return refused(body, str(error), too_large=isinstance(error, TooLarge), unsupported=unsupported)


def split_json(body: bytes, content_type: str | None, limits: Limits) -> Split:
    """Take the JSON of a body apart, after decompression."""
    text = body.removeprefix(BOM).strip(SPACE)
    if not text:
        return Split([], [])
    return _interpret(text, media_type(content_type) in NDJSON_TYPES, limits)


def split_ndjson(body: bytes, limits: Limits) -> Split:
    """Take lines apart, each of them an event, whatever they begin with: those of a file after its first part."""
    text = body.strip(SPACE)
    if has_many_lines(text):
        return split_text(range(len(text)), text, limits)
    raws = [line for line in (line.strip(SPACE) for line in text.split(b"\n")) if line]
    return split_lines(range(len(raws)), raws, limits)


def media_type(content_type: str | None) -> str:
    """Return the type that a Content-Type names, without its parameters, in lower case."""
    return (content_type or "").partition(";")[0].strip().lower()


def split_stream_json(body: bytes, limits: Limits) -> Split:
    """Take a body apart in which JSON texts follow one another without line ends; what cannot be read is the last."""
    text = body.removeprefix(BOM).strip(SPACE)
    raws = split_stream(text, limits.events + 1)
    return _too_many(text, limits) if len(raws) > limits.events else split_lines(range(len(raws)), raws, limits)


def refused(body: bytes, reason: str, *, too_large: bool = False, unsupported: bool = False) -> Split:
    """Return the outcome of a body that is not split: one reject."""
    return Split([], [Reject(0, reason, body)], too_large=too_large, unsupported=unsupported)


def _interpret(text: bytes, ndjson: bool, limits: Limits) -> Split:
    end = text.find(b"\n")
    more = end > 0 and _is_value(text[:end])  # a value on the first line: the others are not part of it
    if more and text.startswith(b"{"):
        few = len(text) <= limits.events or text.count(b"\n") < limits.events
        if few and has_many_lines(text):
            return split_text(range(len(text)), text, limits)
    elements = _split_elements(text, limits) if text.startswith(b"[") else None
    if elements is not None:
        return elements
    whole = None if more else decode_if_plain(text)
    if whole is not None:
        return _array(whole[0], text, limits) if isinstance(whole[0], list) else _each((0,), [text], whole, limits)
    raws = _texts(text, ndjson, limits)
    return _too_many(text, limits) if len(raws) > limits.events else split_lines(range(len(raws)), raws, limits)


def has_many_lines(text: bytes) -> bool:
    """Whether a text has so many lines that they are read as columns, by its beginning where that suffices.

    To count all of them takes as long as to copy the text.
    """
    return text.count(b"\n", 0, _HEAD_BYTES) >= MANY or text.count(b"\n") >= MANY - 1


def _texts(text: bytes, ndjson: bool, limits: Limits) -> list[bytes]:
    """Return the text of each event, of a body that is not one plain JSON value."""
    if text.startswith(b"[") and (elements := split_array(text, limits.events + 1)) is not None:
        return elements
    lines = text.split(b"\n")
    if len(lines) > 1 and (ndjson or _are_lines(lines)):
        stripped = [line.strip(SPACE) for line in lines]
        return stripped if all(stripped) else [line for line in stripped if line]
    return [text]


def _array(values: list[object], text: bytes, limits: Limits) -> Split:
    if len(values) > limits.events:
        return _too_many(text, limits)
    if len(text) <= limits.event_bytes and set(map(type, values)) <= {dict}:
        return Split(raw_events(count(), values, repeat(None)), [])
    return _each(range(len(values)), list(encode_all(values)), values, limits)


def split_lines(positions: Sequence[int], lines: Sequence[bytes], limits: Limits) -> Split:
    """Take apart the texts of events, with the position of each, none blank."""
    if len(lines) >= MANY:
        text = b"\n".join(lines)
        if text.count(b"\n") < len(lines):  # none goes over several lines
            return split_text(positions, text, limits)
    return _each(positions, lines, decode_all(lines), limits)


def split_text(positions: Sequence[int], text: bytes, limits: Limits) -> Split:
    """Take apart the lines of a text, with the position of each that is not blank; there may be positions left over."""
    parts: list[Sequence[RawEvent]] = []
    rejects: list[Reject] = []
    start = 0
    for block in blocks_of(text, limits.event_bytes):
        at = positions[start : start + block.size]
        block_split = _split_block(at, block, limits)
        parts.append(block_split.events)
        rejects += block_split.rejects
        start += len(at)
    return Split(EventParts(parts), rejects)


def _split_block(positions: Sequence[int], block: LineBlock, limits: Limits) -> Split:
    lines = block.lines
    if isinstance(lines, list):
        return _each(positions, lines, decode_all(lines), limits)
    raws = list(lines.odd.values())
    odd = _each([positions[place] for place in lines.odd], raws, decode_all(raws), limits)
    return Split(batch_of(block.text, lines, positions, odd.events), odd.rejects)


def _split_elements(text: bytes, limits: Limits) -> Split | None:
    """Take an array of many objects apart as lines, each an element; None if its elements may be others.

    It is cut wherever the same stands as between its first two objects. These are its elements if each of them is an
    object: otherwise it was cut in a text or in a list within an element.
    """
    between = _BETWEEN.search(text, 0, _HEAD_BYTES)
    if between is None or not text.endswith(b"]"):
        return None
    within = text[1:-1].strip(SPACE)
    cuts = within.count(between[0])
    if not MANY <= cuts + 1 <= limits.events or within.count(b"\n") != cuts * between[0].count(b"\n"):
        return None
    lines = within.replace(between[0], b"}\n{")
    parts: list[Sequence[RawEvent]] = []
    start = 0
    for block in blocks_of(lines, limits.event_bytes):
        at = range(start, start + block.size)
        if (
            isinstance(block.lines, list) and block.size >= LINES_MIN
        ):  # their keys differ: the whole is parsed faster at once
            return None
        if not _are_objects(block.lines if isinstance(block.lines, list) else block.lines.odd.values()):
            return None
        block_split = _split_block(at, block, limits)
        if block_split.rejects:
            return None
        parts.append(block_split.events)
        start = at.stop
    return Split(EventParts(parts), [])


def _are_objects(texts: Iterable[bytes]) -> bool:
    """Whether all texts are JSON objects, at a glance: what they hold is judged elsewhere."""
    try:
        return all(isinstance(orjson.loads(text), dict) for text in texts)
    except orjson.JSONDecodeError:
        return False


def _each(positions: Sequence[int], raws: Sequence[bytes], values: Sequence[object], limits: Limits) -> Split:
    if set(map(type, values)) <= {dict} and max(map(len, raws), default=0) <= limits.event_bytes:
        return Split(raw_events(positions, values, raws), [])
    events: list[RawEvent] = []
    rejects: list[Reject] = []
    for position, raw, value in zip(positions, raws, values, strict=True):
        if isinstance(value, Invalid):
            rejects.append(Reject(position, f"{value}{_A_LINE if isinstance(value, SeveralValues) else ''}", raw))
        elif not isinstance(value, dict):
            rejects.append(Reject(position, f"expected a JSON object, got {describe(value)}", raw))
        elif len(raw) > limits.event_bytes:
            reason = TOO_MANY_BYTES.format(what="event", size=len(raw), limit=limits.event_bytes)
            event = RawEvent(position, value, raw)
            rejects.append(Reject(position, reason, raw, own_reject_id(value), event=event))
        else:
            events.append(RawEvent(position, value, raw))
    return Split(events, rejects)


def _are_lines(lines: Sequence[bytes]) -> bool:
    """Tell NDJSON with broken lines from one broken value on many lines.

    In a broken array, the last element may well be an object on a line of its own: there the first line decides.
    """
    candidates = lines[:1] if lines[0].startswith(b"[") else lines
    return any(_is_value(line) for line in candidates if line[:1] in (b"{", b"["))


def _is_value(line: bytes) -> bool:
    try:
        orjson.loads(line)
    except orjson.JSONDecodeError:
        return False
    return True


def _too_many(text: bytes, limits: Limits) -> Split:
    return refused(text, TOO_MANY_EVENTS.format(f"{limits.events} events"), too_large=True)
