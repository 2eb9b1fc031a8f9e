"""A source of webhooks: its definition, the places of its secrets, and the file of the lake that defines it. Pure."""

from __future__ import annotations

import re
from dataclasses import fields
from datetime import datetime
from typing import TYPE_CHECKING, Any, NamedTuple

import orjson

from alluvia.access.origins import ANY, normal_origin
from alluvia.errors import Invalid
from alluvia.events.formats.body_format import NAMES
from alluvia.events.sources.kinds.generic import ALGORITHMS, ENCODINGS
from alluvia.events.sources.kinds.registry import KINDS
from alluvia.lazy_dataclasses import dataclass
from alluvia.nearest_name import hint
from alluvia.table_names import TABLE_NAME, TABLE_RULE

if TYPE_CHECKING:
    from collections.abc import Mapping

FORMS = "env:NAME, file:PATH, secretsmanager:NAME, secretsmanager:NAME#KEY or ssm:/NAME"
_PLACES = {
    "env": re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,255}"),
    "file": re.compile(r"[^\0\r\n]{1,1000}"),
    "secretsmanager": re.compile(r"[A-Za-z0-9/_+=.@:-]{1,600}(#[^\0\r\n]{1,255})?"),
    "ssm": re.compile(r"[A-Za-z0-9/_.:-]{1,1100}"),
}


class SecretReference(NamedTuple):
    """A place, and the name in it."""

    place: str
    name: str


def check_reference(setting: str, reference: str) -> None:
    """Raise Invalid for what is not a reference, or is empty. It never repeats it: it may be the secret itself."""
    if reference and _match(reference) is None:
        raise Invalid(f"{setting}: say where the secret is, with {FORMS}; the secret itself does not belong here")


def parse_reference(reference: str) -> SecretReference:
    """Return the parts of a reference that has been checked. Raises Invalid as `check_reference`."""
    parsed = _match(reference)
    if parsed is None:
        raise Invalid(f"a reference to a secret must be {FORMS}")
    return parsed


def _match(reference: str) -> SecretReference | None:
    place, separator, name = reference.partition(":")
    pattern = _PLACES.get(place) if separator else None
    return SecretReference(place, name) if pattern is not None and pattern.fullmatch(name) else None


SOURCE_NAME = re.compile(r"[a-z][a-z0-9_-]{0,63}")
HEADER = "header:"
"""Begins a place that is a header of the request, not a path in the event."""
HANDSHAKES = ("", "hub", "challenge")
"""GET requests that are answered: `hub.challenge` with a token (WebSub, Meta), or a bare `challenge` (Dropbox)."""
TOLERANCE_SECONDS = 300
_TOLERANCE_SECONDS_MAX = 24 * 3600
_PROOF = re.compile(
    r"(proxy-)?authorization|cookie|x-api-key|x-gitlab-token|x-telegram-bot-api-secret-token"
    r"|(.*-)?(signature|hmac)(-(sha-?)?[0-9]+)?"
)
_HEADER_NAME = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]{1,100}")
_URL = re.compile(r"https?://[^\s?#]+")
_PRINTABLE = re.compile(r"[ -~]{0,100}")
_ALWAYS = frozenset(
    {"kind", "table", "secret", "previous_secret", "previous_until", "format", "delimiter", "event_id", "ts", "event"}
    | {"origins", "handshake", "verify_token"}
)


@dataclass(frozen=True, slots=True)
class Source:
    """One source, as `sources.toml` has it under its name.

    kind: how the sender proves who it is (`kinds.registry`). table: where its events go. secret: a reference
    (`references`), never the secret itself; "" for none. previous_secret: another that is valid until previous_until.
    format: of its bodies, "" for what each request declares; delimiter: of CSV. event_id, ts, event: where events have
    their identity, time and name: a path such as `data.id`, or `header:Name`; "" for where the kind has it.
    origins: sites whose pages may send events, `*` for all. handshake: a GET request that is answered, with
    verify_token, a reference to what it must bring. url: the address that Twilio was told. The others belong to kind
    hmac; tolerance_seconds is how old a signed timestamp may be, or how far in the future.
    """

    name: str
    kind: str
    table: str
    secret: str = ""
    previous_secret: str = ""
    previous_until: datetime | None = None
    format: str = ""
    delimiter: str = ""
    event_id: str = ""
    ts: str = ""
    event: str = ""
    origins: tuple[str, ...] = ()
    handshake: str = ""
    verify_token: str = ""
    url: str = ""
    tolerance_seconds: int = TOLERANCE_SECONDS
    header: str = ""
    algorithm: str = ALGORITHMS[0]
    encoding: str = ENCODINGS[0]
    prefix: str = ""
    timestamp_header: str = ""
    signed: str = ""

    @classmethod
    def read(cls, name: str, given: object) -> Source:
        """Read one from its table of `sources.toml`. Raises Invalid, naming the source and the setting."""
        try:
            return cls._read(name, given)
        except Invalid as error:
            raise Invalid(f"source {name!r:.100}: {error}") from None

    @classmethod
    def _read(cls, name: str, given: object) -> Source:
        if SOURCE_NAME.fullmatch(name) is None:
            raise Invalid("name: use up to 64 lower-case letters, digits, - and _, starting with a letter")
        if not isinstance(given, dict):
            raise Invalid(f"write it as a table, [{name}]")
        for field in fields(cls)[1:]:
            if field.name in given:
                _check_type(field.name, given[field.name])
        kind = KINDS.get(given.get("kind", ""))
        if kind is None:
            raise Invalid(f"kind: choose one of {', '.join(KINDS)}")
        unknown = sorted(set(given) - _ALWAYS - kind.settings)
        if unknown:
            near = hint(unknown[0], _ALWAYS | kind.settings)
            raise Invalid(f"{unknown[0]}: kind {given['kind']} has no such setting{near}")
        if "table" not in given:
            raise Invalid("table: name the table that the events go to")
        settings: dict[str, Any] = {key: tuple(item) if isinstance(item, list) else item for key, item in given.items()}
        source = cls(name, **settings)
        _check(source)
        fault = kind.fault(source)
        if fault is not None:
            raise Invalid(fault)
        return source

    def settings(self) -> dict[str, object]:
        """Return what `read` takes: everything that differs from its default."""
        return {
            field.name: getattr(self, field.name)
            for field in fields(self)[1:]
            if getattr(self, field.name) != field.default
        }

    def secrets(self, now_us: int) -> list[str]:
        """Return the references of the secrets that are valid at a moment."""
        until = self.previous_until
        previous = self.previous_secret and (until is None or now_us < until.timestamp() * 1_000_000)
        return [reference for reference in (self.secret, self.previous_secret if previous else "") if reference]

    def allows(self, origin: str) -> bool:
        """Whether pages of a site may send events."""
        return ANY in self.origins or origin in map(normal_origin, self.origins)


def check_no_proof(source: Source) -> None:
    """Raise `Invalid` if an event's id, time or name is in a header that proves the sender, which must not be kept.

    This is for new sources. One that is defined goes on working.
    """
    for setting in ("event_id", "ts", "event"):
        place = getattr(source, setting)
        named = place.removeprefix(HEADER) if place.startswith(HEADER) else ""
        if named and (_PROOF.fullmatch(named.lower()) or named.lower() == source.header.lower()):
            raise Invalid(f"{setting}: the header {named} proves the sender, and is not part of the event")


def _check_type(name: str, value: object) -> None:
    if name == "previous_until":
        if not isinstance(value, datetime) or value.tzinfo is None or not 1970 <= value.year < 9999:
            raise Invalid(f"{name}: write a moment from 1970 on with its offset, such as 2026-12-31T00:00:00Z")
    elif name == "tolerance_seconds":
        if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= _TOLERANCE_SECONDS_MAX:
            raise Invalid(f"{name}: write a number of seconds, from 1 to {_TOLERANCE_SECONDS_MAX}")
    elif name == "origins":
        if not isinstance(value, list | tuple) or not all(isinstance(each, str) for each in value):
            raise Invalid(f"{name}: write a list of texts")
    elif not isinstance(value, str):
        raise Invalid(f"{name}: write a text")


def _check(source: Source) -> None:
    if TABLE_NAME.fullmatch(source.table) is None:
        raise Invalid(f"table: use {TABLE_RULE}")
    _check_secrets(source)
    for name in ("event_id", "ts", "event"):
        _check_place(name, getattr(source, name))
    for name, choices in (("algorithm", ALGORITHMS), ("encoding", ENCODINGS), ("handshake", HANDSHAKES)):
        if getattr(source, name) not in choices:
            raise Invalid(f"{name}: choose one of {', '.join(filter(None, choices))}")
    if source.format and source.format not in NAMES:
        raise Invalid(f"format: choose one of {', '.join(NAMES)}")
    for origin in source.origins:
        if origin != ANY and normal_origin(origin) is None:
            raise Invalid(f"origins: {origin!r:.100} is not an origin: write it as https://example.com, or * for all")
    for name, pattern in (("header", _HEADER_NAME), ("timestamp_header", _HEADER_NAME), ("url", _URL)):
        if getattr(source, name) and pattern.fullmatch(getattr(source, name)) is None:
            what = "an address without a query" if name == "url" else "a header's name"
            raise Invalid(f"{name}: write {what}")
    if len(source.delimiter) > 1 or source.delimiter == '"':
        raise Invalid("delimiter: use one character, and no quote")
    for name in ("prefix", "signed", "delimiter"):
        if _PRINTABLE.fullmatch(getattr(source, name).replace("\t", " ")) is None:
            raise Invalid(f"{name}: use up to 100 printable characters of ASCII")


def _check_secrets(source: Source) -> None:
    needed = KINDS[source.kind].needs_secret
    if needed != bool(source.secret):
        instead = (
            "say where the secret is, such as env:NAME" if needed else f"kind {source.kind} has none: leave it out"
        )
        raise Invalid(f"secret: {instead}")
    if source.previous_secret and not source.secret:
        raise Invalid("previous_secret: only a source with a secret has one")
    for name in ("secret", "previous_secret", "verify_token"):
        check_reference(name, getattr(source, name))
    if bool(source.verify_token) != (source.handshake == "hub"):
        raise Invalid("verify_token: handshake hub needs one, and no other takes one")


def _check_place(name: str, place: str) -> None:
    if place.startswith(HEADER):
        if _HEADER_NAME.fullmatch(place.removeprefix(HEADER)) is None:
            raise Invalid(f"{name}: {place!r:.100} does not name a header, as {HEADER}X-Request-Id does")
    elif place and not all(part and part == part.strip() for part in place.split(".")):
        raise Invalid(f"{name}: {place!r:.100} is not a path of field names, as data.order.id is")


KEY = "_alluvia/sources.toml"
"""Where a lake keeps it."""


def parse(data: bytes) -> tuple[dict[str, Source], dict[str, str]]:
    """Return the sources that are valid, and why the others are not, by name. Raises Invalid for what is not TOML."""
    import tomllib  # most lakes have no sources

    try:
        tables = tomllib.loads(data.decode("utf-8-sig"))  # some editors write a mark in front
    except (ValueError, RecursionError) as error:  # of bytes, TOML, moments, or the digits of a number
        raise Invalid(f"{KEY} is not valid TOML: {error}") from None
    sources: dict[str, Source] = {}
    faults: dict[str, str] = {}
    for name, given in tables.items():
        try:
            sources[name] = Source.read(name, given)
        except Invalid as error:
            faults[name] = str(error)
    return sources, faults


def render(sources: Mapping[str, Source]) -> bytes:
    """Return the text of sources, in the order of their names."""
    return "\n".join(_table(source) for _, source in sorted(sources.items())).encode()


def _table(source: Source) -> str:
    lines = (f"{name} = {_value(value)}\n" for name, value in source.settings().items())
    return f"[{source.name}]\n{''.join(lines)}"


def _value(value: object) -> str:
    """Return a value as TOML; its texts are those of JSON, except for one control character."""
    if isinstance(value, datetime):
        return value.isoformat().replace("+00:00", "Z")
    if isinstance(value, tuple):
        return f"[{', '.join(map(_value, value))}]"
    return orjson.dumps(value).decode().replace("\x7f", "\\u007f")
