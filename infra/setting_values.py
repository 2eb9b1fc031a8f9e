"""What the texts of settings mean. All functions raise ValueError, naming the setting, for what does not fit."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from alluvia.access.origins import normal_origin

PREFIX = "alluvia:"
_S3_URI = re.compile(r"s3://(?P<bucket>[a-z0-9][a-z0-9.-]{1,61}[a-z0-9])(?:/(?P<prefix>[A-Za-z0-9!_.'()/-]*))?")
_SECRET = re.compile(
    r"(?P<place>secretsmanager|ssm):(?P<name>arn:aws[a-z-]*:(?P=place):[A-Za-z0-9/_+=.@:-]+|[A-Za-z0-9/_+=.@-]+)"
)
_RELEASE = re.compile(r"emr-spark-8\.[0-9]{1,2}\.[0-9]{1,2}")
_EMAIL = re.compile(r"[^@\s]+@[^@\s]+\.[^@\s]+")


@dataclass(frozen=True, slots=True)
class BackfillSource:
    """A folder of a bucket, or an object, that backfills may read. `prefix` is empty or ends in a slash."""

    bucket: str
    prefix: str


@dataclass(frozen=True, slots=True)
class WebhookSecret:
    """A secret that the function of webhooks may read: in secretsmanager or ssm, by its name or ARN."""

    place: str
    name: str


def one_of(name: str, value: str, allowed: tuple[str, ...]) -> str:
    """Return a value that is one of those that there are."""
    if value not in allowed:
        raise ValueError(f"{PREFIX}{name} is {value!r}: it must be {' or '.join(allowed)}")
    return value


def whether(name: str, values: Mapping[str, str], default: bool = False) -> bool:
    """Return true or false."""
    return one_of(name, values.get(name, str(default)).lower(), ("true", "false")) == "true"


def number(name: str, values: Mapping[str, str], default: int, least: int = 1, most: int | None = None) -> int:
    """Return a whole number within bounds, both included; `most` None: without an upper one."""
    value = values.get(name, str(default))
    fits = value.isascii() and value.isdigit() and least <= int(value) and (most is None or int(value) <= most)
    if not fits:
        bounds = f"{least} or more" if most is None else f"{least} to {most}"
        raise ValueError(f"{PREFIX}{name} is {value!r}: it must be a whole number, {bounds}")
    return int(value)


def number_or_none(name: str, values: Mapping[str, str], most: int | None = None) -> int | None:
    """Return a whole number of 1 or more, or None where none is given."""
    return number(name, values, 0, 1, most) if name in values else None


def email(name: str, value: str) -> str:
    """Return an email address."""
    if _EMAIL.fullmatch(value) is None:
        raise ValueError(f"{PREFIX}{name} is {value!r}: it must be an email address, or empty")
    return value


def origins(name: str, value: str) -> tuple[str, ...]:
    """Return the sites as browsers name them, each once; one that is `*` stands for all."""
    found = []
    for text in value.split():
        origin = text if text == "*" else normal_origin(text)
        if origin is None:
            raise ValueError(
                f"{PREFIX}{name} holds {text!r}: each part must be a site, such as https://app.example.com"
            )
        found.append(origin)
    return ("*",) if "*" in found else tuple(dict.fromkeys(found))


def release(name: str, value: str) -> str:
    """Return the label of a release of EMR Serverless."""
    if _RELEASE.fullmatch(value) is None:
        raise ValueError(f"{PREFIX}{name} is {value!r}: it must be a release with Spark 4, such as emr-spark-8.0.0")
    return value


def sources(name: str, value: str) -> tuple[BackfillSource, ...]:
    """Return folders, objects and buckets that backfills may read."""
    found = []
    for text in filter(None, (part.strip() for part in value.split(","))):
        match = _S3_URI.fullmatch(text)
        if match is None:
            raise ValueError(
                f"{PREFIX}{name} holds {text!r}: each part must be s3://bucket or s3://bucket/prefix, without wildcards"
            )
        prefix = match["prefix"] or ""
        found.append(BackfillSource(match["bucket"], f"{prefix.rstrip('/')}/" if prefix else ""))
    return tuple(found)


def secrets(name: str, value: str) -> tuple[WebhookSecret, ...]:
    """Return secrets that the function of webhooks may read. Errors do not show what was given."""
    found = []
    for text in filter(None, (part.strip() for part in value.split(","))):
        match = _SECRET.fullmatch(text)
        if match is None:
            raise ValueError(
                f"{PREFIX}{name}: each part must be secretsmanager:NAME, ssm:/NAME, or either with an ARN, "
                "without wildcards; one is something else, and is not shown, since it may be a secret"
            )
        found.append(WebhookSecret(match["place"], match["name"]))
    return tuple(found)
