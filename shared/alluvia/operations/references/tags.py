"""Tags: names for versions of a table, and for a lake as it was at one moment. Tagged versions stay readable."""

from __future__ import annotations

from datetime import datetime, timedelta

from alluvia.clock import datetime_of
from alluvia.commit.handle import ReadableTable, TableHandle
from alluvia.commit.intents import TableAt
from alluvia.commit.versions import other_table_message
from alluvia.delta.arguments import duration_ms, milliseconds
from alluvia.delta.lineage import in_gap, version_gaps
from alluvia.delta.refs import TAG, Keeper, all_keepers, find_keeper, list_keepers, release
from alluvia.delta.snapshot import Snapshot
from alluvia.errors import Conflict, Invalid, VersionExpired, VersionNotFound
from alluvia.lazy_dataclasses import dataclass
from alluvia.nearest_name import did_you_mean
from alluvia.operations.catalog.catalog import Catalog
from alluvia.operations.references.pinned_versions import keep_moment, keep_version, kept_at
from alluvia.store import Store


@dataclass(frozen=True, slots=True)
class Tag:
    """A tag: of a `version` of a table, or of all tables of the lake as they were at `moment`.

    `table` and `version` are None for a tag of the lake, `moment` is None for one of a table. `expires` is when it
    keeps its versions no more, None for never; `by` is who made it, as far as that is known.
    """

    name: str
    table: str | None
    version: int | None
    moment: datetime | None
    created: datetime
    expires: datetime | None
    expired: bool
    by: str | None


def tag_table(
    handle: TableHandle,
    name: str,
    version: int | None = None,
    timestamp: datetime | str | None = None,
    *,
    expires: str | timedelta | None = None,
    replace: bool = False,
    by: str | None = None,
) -> Tag:
    """Tag a version of a table, the newest by default. Five requests. Raises as `keep_version` does."""
    now_ms = handle.clock.now_ms()
    until_ms = _expiry(expires, now_ms)
    keeper, _ = keep_version(handle, TAG, name, version, timestamp, expires_ms=until_ms, by=by, replaces=replace)
    return _tag(keeper, now_ms)


def tag_lake(
    catalog: Catalog,
    name: str,
    timestamp: datetime | str | None = None,
    *,
    expires: str | timedelta | None = None,
    replace: bool = False,
    by: str | None = None,
) -> Tag:
    """Tag all tables of a lake as they are now, or as they were at a time. Raises as `keep_moment` does."""
    now_ms = catalog.clock.now_ms()
    at_ms = None if timestamp is None else milliseconds(timestamp)
    until_ms = _expiry(expires, now_ms)
    keep_moment(catalog, TAG, name, at_ms, expires_ms=until_ms, by=by, replaces=replace)
    keeper = find_keeper(catalog.store, None, TAG, name)
    if keeper is None:
        raise Conflict(f"tag {name} was deleted by another caller meanwhile")
    return _tag(keeper, now_ms)


def drop_tag(store: Store, table: str | None, name: str) -> None:
    """Delete a tag of a table, or of the lake for None: vacuum may take what it has kept. Raises `VersionNotFound`."""
    keeper = find_keeper(store, table, TAG, name)
    if keeper is None:
        raise _no_tag(store, table, name)
    release(store, keeper)


def table_tags(handle: ReadableTable) -> list[Tag]:
    """Return the tags of a table, in the order of their names. One LIST, and a GET for each."""
    now_ms = handle.clock.now_ms()
    return [_tag(keeper, now_ms) for keeper in list_keepers(handle.store, handle.name, TAG)]


def lake_tags(catalog: Catalog, *, tables: bool = False) -> list[Tag]:
    """Return the tags of the lake; with `tables`, also those of all its tables. One LIST, and a GET for each."""
    keepers = all_keepers(catalog.store, TAG) if tables else list_keepers(catalog.store, None, TAG)
    now_ms = catalog.clock.now_ms()
    return [_tag(keeper, now_ms) for keeper in sorted(keepers, key=lambda each: (each.table or "", each.name))]


def tagged(handle: ReadableTable, name: str) -> Snapshot:
    """Return a table as a tag says. Raises what `tagged_at` does."""
    return handle.committed.as_of(tagged_at(handle, name).shown)


def tagged_at(handle: ReadableTable, name: str) -> TableAt:
    """Return a table as a tag says: one of its own, else one of the lake.

    A GET, and for a tag of the lake a GET, a HEAD and two LISTs, besides what reading a version costs. Raises
    `VersionNotFound` where there is no such tag, or it is of an earlier table of that name, `TableNotFound` where the
    lake had no such table then, and `VersionExpired` for a tag that has expired.
    """
    handle = handle.committed
    keeper = find_keeper(handle.store, handle.name, TAG, name) or find_keeper(handle.store, None, TAG, name)
    if keeper is None:
        handle.newest()  # without a table, that is what is wrong
        raise _no_tag(handle.store, handle.name, name)
    if keeper.expires_ms is not None and not keeper.is_live(handle.clock.now_ms()):
        raise VersionExpired(f"{keeper} expired at {datetime_of(keeper.expires_ms):%Y-%m-%d %H:%M:%S} UTC")
    gaps = version_gaps(handle.newest().properties)
    at = kept_at(handle, keeper)
    if in_gap(gaps, at.version):
        raise VersionNotFound(f"{keeper}: {other_table_message(handle.name, at.version)}")
    return at


def _no_tag(store: Store, table: str | None, name: str) -> VersionNotFound:
    known = [keeper.name for keeper in list_keepers(store, table, TAG)]
    what = "the lake" if table is None else f"table {table}"
    listed = f"; its tags are: {', '.join(known[:20])}{', …' if len(known) > 20 else ''}" if known else ""
    near = did_you_mean(name, known)
    return VersionNotFound(f"{what} has no tag {name!r}{f': {near}' if near else listed}")


def _expiry(expires: str | timedelta | None, now_ms: int) -> int | None:
    if expires is None:
        return None
    lasts_ms = int(expires / timedelta(milliseconds=1)) if isinstance(expires, timedelta) else duration_ms(expires)
    if lasts_ms is None or lasts_ms <= 0:
        raise Invalid(f"expires: {expires!r:.100} is not a duration: use for example 30d or '12 hours'")
    return now_ms + lasts_ms


def _tag(keeper: Keeper, now_ms: int) -> Tag:
    return Tag(
        keeper.name,
        keeper.table,
        keeper.version,
        None if keeper.table is not None else datetime_of(keeper.moment),
        datetime_of(keeper.created_ms),
        None if keeper.expires_ms is None else datetime_of(keeper.expires_ms),
        not keeper.is_live(now_ms),
        keeper.by,
    )
