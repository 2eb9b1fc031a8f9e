"""Which table is meant, and where Spark finds its files."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

import alluvia
from alluvia.api.lake import Lake, Table, open_handle, open_table
from alluvia.commit.handle import TableHandle
from alluvia.delta.log.replay import State
from alluvia.delta.snapshot import Snapshot
from alluvia.errors import Invalid, Unsupported
from alluvia.operations.references import tags
from alluvia.store.uris import plain_uri

LOOPBACK = ("localhost", "127.0.0.1", "::1", "[::1]")
_S3 = re.compile(r"^s3[an]?://", re.IGNORECASE)


def handle_of(
    place: str | Lake, table: str | None, options: Mapping[str, str], branch: str | None = None
) -> TableHandle:
    """Return the handle of a table: of a lake's by its name, or of any Delta table by its path or URI.

    It is that of a lake's `branch`, if one is named. `s3a://` is taken for `s3://`. `options` are those of
    `alluvia.connect`. Raises `Invalid`.
    """
    if isinstance(place, Lake):
        if options or table is None:
            wrong = f"{min(options)}: give it to alluvia.connect" if options else "table: give the table's name"
            raise Invalid(f"{wrong}, since a lake was given")
        return _on(place, branch).catalog.handle(table)
    place = _S3.sub("s3://", str(place))
    if place.startswith("memory:"):
        raise Invalid(f"{place!r} exists only in this process: Spark needs a directory or s3://")
    given: Any = dict(options)
    if table is not None:
        return _on(alluvia.connect(place, **given), branch).catalog.handle(table)
    if branch is not None:
        raise Invalid("branch: give the lake's path or URI, and the table's name as `table`")
    return open_handle(place, **given)


def absolute_place(place: str, here: str | None) -> str:
    """Return a path or URI that means the same in every process. A relative path begins in the user's folder `here`.

    Raises `Invalid` for a relative path where that folder means nothing: to a server of Spark's on another machine, or
    where the source was registered by other means than `alluvia_spark.register`.
    """
    uri = plain_uri(place)
    if "://" in uri or uri.startswith("memory:"):
        return uri
    path = Path(uri).expanduser()
    if not path.is_absolute():
        if here is None:
            raise Invalid(
                f"path {place!r} is relative, and Spark works in another folder: give an absolute path or a URI, such "
                "as s3://bucket/lake/orders"
            )
        path = Path(here, path)
    return os.path.abspath(path)  # noqa: PTH100 - it follows no links


def folder_of(spark: SparkSession) -> str | None:
    """Return the folder that the user's relative paths begin in; None where Spark's server is on another machine."""
    theirs: Any = spark
    if is_classic(spark) or theirs.client.host in LOOPBACK:
        return str(Path.cwd())
    return None


def _on(lake: Lake, branch: str | None) -> Lake:
    return lake if branch is None else lake.on_branch(branch)


def tagged(
    handle: TableHandle, tag: str, table: str | None, version: int | None, timestamp: datetime | str | None
) -> Snapshot:
    """Return the version with a tag. Raises `Invalid` for a table that was given without its lake."""
    if version is not None or timestamp is not None:
        raise Invalid("version, timestamp, tag: give one of them")
    if table is None:
        raise Invalid("tag: give the lake's path or URI, and the table's name as `table`")
    return tags.tagged(handle, tag)


def bare(state: State) -> State:
    """Return a version without its files, to be sent to tasks."""
    return State(state.version, state.protocol, state.metadata)


@dataclass(frozen=True)
class TablePlace:
    """Where a table is, for every process: what `handle_of` takes."""

    uri: str
    table: str | None
    options: Mapping[str, str] = field(repr=False)

    @classmethod
    def of(cls, place: str | Lake, table: str | None, options: Mapping[str, str]) -> TablePlace:
        """Return a place that means the same in every process: workers may have another working directory.

        Raises `Invalid` for a lake that other processes cannot open by its URI alone, and as `handle_of` does.
        """
        if isinstance(place, Lake):
            handle_of(place, table, options)  # which says what is wrong
            if place.branch_name is not None:
                raise Invalid(f"place: on branch {place.branch_name!r} Spark changes no rows; give the lake itself")
            if not place.uri.startswith("file:"):
                raise Invalid(
                    f"place: Spark's executors cannot use the connection of this lake: give its URI, {place.uri!r}, "
                    "the table's name as `table`, and the options that alluvia.connect was given"
                )
        uri = place.uri if isinstance(place, Lake) else str(place)
        return cls(absolute_place(uri, str(Path.cwd())), table, options)

    def handle(self) -> TableHandle:
        """Return the table's handle."""
        return handle_of(self.uri, self.table, self.options)

    def lake(self) -> Lake:
        """Return the lake that the place is in, or is."""
        given: Any = dict(self.options)
        return alluvia.connect(_S3.sub("s3://", self.uri), **given)

    def opened(self) -> Table:
        """Return the table, with its lake."""
        if self.table is not None:
            return self.lake().table(self.table)
        given: Any = dict(self.options)
        return open_table(_S3.sub("s3://", self.uri), **given)


def uris_of(spark: SparkSession, place: str | Lake, handle: TableHandle) -> Callable[[str], str]:
    """Return what gives the URI under which a session reads an object of a table's store, by its key.

    On S3 it has the scheme that the table was given with. For `s3://` that is `s3a://` where the session has no file
    system for `s3://`, as only EMR and Databricks do. Raises `Unsupported` for an object that Spark cannot read.
    """
    given = _S3.match(place) if isinstance(place, str) else None
    scheme = given[0].lower() if given is not None else "s3://"

    def uri(key: str) -> str:
        url = handle.store.url(key)
        if url is None:
            raise Unsupported(f"Spark cannot read {key} of the table {handle.name} in {handle.store.uri}")
        return _S3.sub(in_session, url) if "://" in url else f"file:{Path(url).absolute()}"

    in_session = "s3a://" if scheme == "s3://" and not _has_s3(spark) else scheme
    return uri


def _has_s3(spark: SparkSession) -> bool:
    """Whether a session has a file system of its own for `s3://`."""
    name = "fs.s3.impl"
    if spark.conf.get(f"spark.hadoop.{name}", None):
        return True
    jvm: Any = getattr(spark, "_jsparkSession", None) if is_classic(spark) else None
    return jvm is not None and bool(jvm.sessionState().newHadoopConf().get(name))


def is_classic(spark: SparkSession) -> bool:
    """Whether a session has its driver in this process's own JVM, which one of Spark Connect has not."""
    return not type(spark).__module__.startswith("pyspark.sql.connect")
