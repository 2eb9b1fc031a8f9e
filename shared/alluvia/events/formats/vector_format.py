"""Vector's http sink: JSON arrays or NDJSON. Pure.

Events have no id of their own. A batch that was not acknowledged comes again byte for byte, so its bytes identify it if
each of its events has a time of its own.
"""

from __future__ import annotations

from alluvia.events.formats.events import body_key
from alluvia.events.formats.json_format import read
from alluvia.events.formats.values import BodyFormat

FORMAT = BodyFormat(read, body_key)
