"""What the ingest function reads from its environment, besides the lake."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from alluvia.errors import Invalid
from alluvia.ingest.values import Limits

EVENTS_MAX = 100_000
"""Events of one request: more would not fit the memory of the function, however small they are."""
TABLES_MAX = 1000
"""Tables of a lake beyond which posts create none: whoever may post may invent names."""
_DEFAULT = Limits()


@dataclass(frozen=True, slots=True)
class Settings:
    """What is taken, and where to. `queue_url` is set if and only if events go into a queue."""

    queue_url: str | None
    create_tables: bool
    limits: Limits
    tables_max: int = TABLES_MAX

    @classmethod
    def read(cls, environment: Mapping[str, str]) -> Settings:
        """Read the settings. Invalid names the variable that is missing or unusable."""
        mode = _one_of(environment, "ALLUVIA_MODE", ("direct", "queued"))
        queue_url = environment.get("ALLUVIA_QUEUE_URL") or None
        if mode == "queued" and queue_url is None:
            raise Invalid("ALLUVIA_QUEUE_URL is not set, but ALLUVIA_MODE is queued: give it the queue's URL")
        return cls(
            queue_url if mode == "queued" else None,
            _one_of(environment, "ALLUVIA_CREATE_TABLES", ("false", "true")) == "true",
            Limits(
                _number(environment, "ALLUVIA_BODY_LIMIT_BYTES", _DEFAULT.body_bytes),
                _number(environment, "ALLUVIA_INFLATED_LIMIT_BYTES", _DEFAULT.inflated_bytes),
                _number(environment, "ALLUVIA_EVENT_LIMIT_BYTES", _DEFAULT.event_bytes),
                EVENTS_MAX,
            ),
            _number(environment, "ALLUVIA_CREATE_TABLES_MAX", TABLES_MAX, "tables"),
        )


def _one_of(environment: Mapping[str, str], name: str, choices: tuple[str, ...]) -> str:
    value = environment.get(name) or choices[0]
    if value not in choices:
        raise Invalid(f"{name} is {value!r}: use {' or '.join(choices)}")
    return value


def _number(environment: Mapping[str, str], name: str, default: int, what: str = "bytes") -> int:
    text = environment.get(name) or str(default)
    if not text.isascii() or not text.isdigit() or int(text) == 0:
        raise Invalid(f"{name} is {text!r}: use a number of {what} above 0")
    return int(text)
