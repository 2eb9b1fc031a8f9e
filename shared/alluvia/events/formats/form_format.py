"""Forms (application/x-www-form-urlencoded): one event, each field's value as text; of a repeated field a list. Pure.

`curl -d` sends JSON under this type, too: a body that begins as JSON does, or has no `=`, is read as JSON.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING
from urllib.parse import parse_qsl

from alluvia.events.formats import json_format
from alluvia.events.formats.events import Events, text_given
from alluvia.events.formats.values import BodyFormat, SentBody
from alluvia.events.ingest.envelope import refused

if TYPE_CHECKING:
    from alluvia.events.ingest.values import Limits, Split

_FIELDS_MAX = 10_000


def read(sent: SentBody, limits: Limits) -> Split:
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


FORMAT = BodyFormat(read)
