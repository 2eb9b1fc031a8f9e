"""multipart/form-data (RFC 7578), as browsers and `curl -F` send files: `data`, and with it perhaps `schema`."""

from __future__ import annotations

from multipart import MultipartError, MultipartSegment, PushMultipartParser, parse_options_header

from alluvia.errors import Invalid
from alluvia.events.ingest.envelope import media_type
from alluvia.lazy_dataclasses import dataclass
from alluvia.serverless.routes.ingest_routes import FORM_FIELDS

FIELDS_MAX = 16
FIELD_BYTES_MAX = 1 << 20
FIELDS = ("data", *(field.name for field in FORM_FIELDS))


@dataclass(frozen=True, slots=True)
class SentForm:
    """The file of a form, what its part says of it, and the other fields by name."""

    data: bytes
    media_type: str
    file_name: str
    fields: dict[str, str]


def read_form(body: bytes, content_type: str) -> SentForm:
    """Return what a form holds. Raises `Invalid`, naming the field."""
    boundary = parse_options_header(content_type)[1].get("boundary", "")
    if not boundary:
        raise Invalid("Content-Type: multipart/form-data must name its boundary")
    fields: dict[str, str] = {}
    file: tuple[bytes, MultipartSegment] | None = None
    try:
        for segment, content in _segments(body, boundary):
            name = segment.name
            if name not in FIELDS:
                raise Invalid(f"the form has the field {name!r:.100}: send {', '.join(FIELDS)}")
            if name in fields or (name == "data" and file is not None):
                raise Invalid(f"the form has the field {name} twice: send one file a request")
            if name == "data":
                file = content, segment
            elif len(content) > FIELD_BYTES_MAX:
                raise Invalid(f"{name}: longer than {FIELD_BYTES_MAX} bytes")
            else:
                fields[name] = content.decode()
    except (MultipartError, UnicodeDecodeError) as error:
        raise Invalid(f"the form cannot be read: {error}") from None
    if file is None:
        raise Invalid("the form has no field data, which is the file: curl -F data=@rows.csv")
    data, segment = file
    return SentForm(data, media_type(segment.content_type), segment.filename or "", fields)


def _segments(body: bytes, boundary: str) -> list[tuple[MultipartSegment, bytes]]:
    segments: list[tuple[MultipartSegment, bytes]] = []
    with PushMultipartParser(boundary, max_segment_count=FIELDS_MAX, strict=True) as parser:
        for event in parser.parse(body):
            if isinstance(event, MultipartSegment):
                segments.append((event, b""))
            elif event is not None:
                segment, content = segments[-1]
                segments[-1] = (segment, content + event)
    return segments
