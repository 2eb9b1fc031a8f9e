"""The options of `format("alluvia")`: where the table is, which part of it is read, how it is written."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from alluvia.commit.handle import TableHandle
from alluvia.delta.properties import KNOWN
from alluvia.errors import Invalid
from alluvia.nearest_name import did_you_mean
from alluvia_spark.tables import absolute_place, handle_of
from alluvia_spark.wording import TIMESTAMP, VERSION

READING = ("version", "timestamp", "tag", "branch", "where")
CREATING = ("partitionBy", "sortBy", "clusterBy")
PARTITIONS = "partitionOverwriteMode"
WRITING = ("replaceWhere", PARTITIONS, "mergeSchema", "txnAppId", "txnVersion", *CREATING)
LIMITS = ("maxFilesPerTrigger", "maxBytesPerTrigger")
FOLLOWING = ("startingVersion", "startingTimestamp", *LIMITS, "readChangeFeed", "ignoreDeletes", "skipChangeCommits")
"""Options of a stream that reads a table; delta-spark has the same."""
STREAMING = ("checkpointLocation", "queryName")
"""Options of a stream that Spark reads itself, and passes on."""
STORE = ("endpoint_url", "region", "access_key_id", "secret_access_key", "session_token")
_DELTAS = {"versionasof": "version", "timestampasof": "timestamp"}
"""Delta's names of options that are ours."""
_SHOWN = {"version": VERSION, "timestamp": TIMESTAMP}
_NAMES = {
    name.lower(): name for name in ("path", "table", *READING, *WRITING, *FOLLOWING, *STREAMING, *STORE)
} | _DELTAS
_PROPERTIES = {name.lower(): name for name in KNOWN}
VIEW = "Spark's catalog keeps no tables of this source: use CREATE TEMPORARY VIEW name USING alluvia OPTIONS (path '…')"
COLUMNS = (
    "option overwriteSchema: mode('overwrite') keeps the table's columns. Add those that only the DataFrame has with "
    "option('mergeSchema', 'true'), save to another path, or replace the table first, by CREATE OR REPLACE TABLE in "
    "lake.sql"
)
_ELSEWHERE = {
    "overwriteschema": COLUMNS,
    **dict.fromkeys(("owner", "provider", "location", "external"), VIEW),
}
"""Options of Spark's sources that this one lacks, with what to do instead."""
_COMMA = re.compile(r",(?![^(]*\))")


@dataclass(frozen=True)
class AlluviaOptions:
    """Options by their names, whose case Spark does not keep. `properties` are those of a table that is created."""

    given: Mapping[str, str] = field(repr=False)
    properties: Mapping[str, str]

    @classmethod
    def of(cls, options: Mapping[str, str], here: str | None = None) -> AlluviaOptions:
        """Read options; a relative path begins in the folder `here`.

        Raises `Invalid`, naming it, for one that is unknown, missing or given twice.
        """
        given, properties = {}, {}
        for name, value in options.items():
            if (known := _NAMES.get(name.lower())) is not None:
                if known in given:
                    raise Invalid(f"option {_SHOWN.get(known, known)} is given twice, by both names: leave one out")
                given[known] = value
            elif (known := _PROPERTIES.get(name.lower())) is not None:
                properties[known] = value
            elif (instead := _ELSEWHERE.get(name.lower())) is not None:
                raise Invalid(instead)
            else:
                raise Invalid(_unknown(name))
        if not given.get("path"):  # as of tables that Spark's catalog has, which it makes without asking
            raise Invalid(f"option path: give the table's path or URI, as in load(path) or save(path). {VIEW}")
        given["path"] = absolute_place(given["path"], here)
        return cls(given, properties)

    def handle(self) -> TableHandle:
        """Return the handle of the table."""
        store = {name: value for name, value in self.given.items() if name in STORE}
        return handle_of(self.given["path"], self.given.get("table"), store, self.given.get("branch"))

    def refuse(self, names: Sequence[str], why: str) -> None:
        """Raise `Invalid` for an option that is given where it means nothing."""
        for name in names:
            if name in self.given:
                raise Invalid(f"option {_SHOWN.get(name, name)} is {why}: leave it out")

    def number(self, name: str) -> int | None:
        """Return an option's number, None without one. Raises `Invalid`."""
        text = self.given.get(name)
        if text is not None and not re.fullmatch(r"\d{1,18}", text.strip(), re.ASCII):
            raise Invalid(f"option {_SHOWN.get(name, name)}: {text!r} is not a whole number")
        return None if text is None else int(text)

    def size(self, name: str) -> int | None:
        """Return an option's number of bytes, such as `10m`, None without one. Raises `Invalid`."""
        text = self.given.get(name)
        found = None if text is None else re.fullmatch(r"(\d{1,12})([kmg]?)b?", text.strip().lower(), re.ASCII)
        if text is not None and found is None:
            raise Invalid(f"option {name}: {text!r} is not a number of bytes, such as '64m'")
        return None if found is None else int(found[1]) << {"": 0, "k": 10, "m": 20, "g": 30}[found[2]]

    def flag(self, name: str) -> bool:
        """Return whether an option is on. Raises `Invalid`."""
        text = self.given.get(name, "false").strip().lower()
        if text not in ("true", "false"):
            raise Invalid(f"option {name}: {text!r} is not valid; use 'true' or 'false'")
        return text == "true"

    def choice(self, name: str, choices: Sequence[str]) -> str | None:
        """Return an option that is one of some words, in any case; None without it. Raises `Invalid`."""
        text = self.given.get(name)
        chosen = None if text is None else text.strip().lower()
        if chosen is not None and chosen not in choices:
            raise Invalid(f"option {name}: {text!r} is not valid; use {' or '.join(map(repr, choices))}")
        return chosen

    def names(self, name: str) -> list[str]:
        """Return an option's list: of JSON, or with commas between."""
        text = self.given.get(name, "").strip()
        try:
            parts = json.loads(text) if text.startswith("[") else [part.strip() for part in _COMMA.split(text)]
        except ValueError as error:
            raise Invalid(f"option {name}: {text!r} is not a list of names") from error
        return [str(each) for each in parts if each != ""]

    def txn(self) -> tuple[str, int] | None:
        """Return the transaction that makes a write happen once. Raises `Invalid` for half of one."""
        app_id, number = self.given.get("txnAppId"), self.number("txnVersion")
        if app_id is None and number is None:
            return None
        if app_id is None or number is None:
            raise Invalid("options txnAppId, txnVersion: give both, or neither")
        return app_id, number


def _unknown(name: str) -> str:
    """Say that there is no such option, and which is nearest. Spark gives names in lower case."""
    known = {*_NAMES.values(), *_PROPERTIES.values(), "versionAsOf", "timestampAsOf"}
    near = did_you_mean(name, known, 3)
    if near:
        return f"option {name} is unknown: {near}"
    return f"option {name} is unknown; the known ones are {', '.join(sorted(set(_NAMES.values())))}"
