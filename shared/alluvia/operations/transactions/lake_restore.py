"""Restore a lake: in one transaction, all of its tables become what they were at a moment."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import datetime
from functools import partial

from alluvia.clock import datetime_of
from alluvia.commit.changes import Changes
from alluvia.commit.versions import oldest_readable, other_table_message
from alluvia.delta.arguments import milliseconds, moment_ago
from alluvia.delta.lineage import DroppedTable, dropped_tables, in_gap, is_dropped, version_gaps
from alluvia.delta.log.actions import DomainMetadata
from alluvia.delta.properties import is_derived
from alluvia.delta.refs import TAG, Keeper, find_keeper
from alluvia.delta.snapshot import Snapshot
from alluvia.errors import Conflict, Invalid, TableExists, TableNotFound, VersionExpired, VersionNotFound
from alluvia.lazy_dataclasses import dataclass
from alluvia.operations.catalog.catalog import WritableCatalog
from alluvia.operations.catalog.schemas import create_schema, missing_schemas
from alluvia.operations.catalog.views import check_no_view
from alluvia.operations.references.pinned_versions import kept_at
from alluvia.operations.streams import streams
from alluvia.operations.tables.restore import plan_restore, restore_to
from alluvia.operations.transactions.lake_transaction import StagedTables
from alluvia.operations.transactions.past_snapshots import Then, lake_at
from alluvia.table_names import PLAIN_NAME, REJECTS, STREAMS

TRIES_MAX = 20
RESTORE, DROP, UNDROP, REFRESH, MOVE = "restore", "drop", "undrop", "refresh", "move"


@dataclass(frozen=True, slots=True)
class RestoreStep:
    """The outcome for one table, or one stream.

    `action` is `restore`, to `version`; `drop`, since it was created later; `undrop`, and restore to `version`; `move`,
    of a stream, to its position of then; or `refresh`, of a rollup, which is left to a refresh.
    """

    name: str
    action: str
    version: int | None = None


@dataclass(frozen=True, slots=True)
class LakeRestore:
    """What a restore of a lake did, or would do. `unchanged` counts the tables that are as they were.

    `versions` are those that it made, by table; empty in a dry run.
    """

    moment: datetime
    steps: tuple[RestoreStep, ...]
    unchanged: int
    versions: dict[str, int]
    dry_run: bool


@dataclass(frozen=True, slots=True)
class _Planned:
    """A step, and what carries it out."""

    step: RestoreStep
    stage: Callable[[StagedTables], object]


def restore_lake(
    catalog: WritableCatalog,
    moment: datetime,
    *,
    dry_run: bool = False,
    check: Callable[[str], object] = lambda _: None,
    then_of: Callable[[Sequence[str]], dict[str, Then]] | None = None,
) -> LakeRestore:
    """Make the tables of a lake what they were at a moment, all or none of them.

    Tables that were created since are dropped, and those that were dropped since come back, before them their schemas.
    `check` is asked about each table that would change, before any does. `then_of` says what the moment means, where
    that is not the times of commits. Raises `VersionExpired`, naming a table that retention does not let go so far
    back, `Invalid` for one that cannot be restored, or for a schema with the name of a branch, and `Conflict` where
    other writers change the tables all the time.
    """
    at_ms = int(moment.timestamp() * 1000)
    if at_ms > catalog.clock.now_ms():
        raise Invalid(f"timestamp: {moment.isoformat()} is in the future")
    for tries in range(1, TRIES_MAX + 1):
        names = log_names(catalog)
        then = lake_at(catalog, names, at_ms) if then_of is None else then_of(names)
        planned = _with_whole_tables([each for name in names if (each := _planned(name, then[name])) is not None])
        for each in planned:
            check(each.step.name)
        steps = tuple(each.step for each in planned)
        unchanged = sum(not name.startswith(STREAMS) for name in names) - len({step.name for step in steps})
        report = LakeRestore(moment, steps, unchanged, {}, dry_run)
        missing = missing_schemas(catalog.store, [step.name for step in steps if step.action == UNDROP])
        if dry_run:
            return report
        for schema in missing:
            create_schema(catalog.store, catalog.clock, schema, exist_ok=True)
        try:
            tables = StagedTables(catalog, [])
            tables.use(_used(planned))
            for each in planned:
                each.stage(tables)
            return replace(report, versions=dict(tables.commit()))
        except (Conflict, TableExists, TableNotFound):
            if tries == TRIES_MAX:
                raise
    raise AssertionError("the last try returns or raises")


def log_names(catalog: WritableCatalog) -> list[str]:
    """Return the names of all that a restore of a lake is about: tables, also dropped ones, and logs of streams."""
    tables = catalog.tables(rejects=True, dropped=True)
    return tables + [STREAMS + name for name in catalog.store.list_folders(STREAMS) if PLAIN_NAME.fullmatch(name)]


def _used(planned: Sequence[_Planned]) -> list[str]:
    return [
        f"{STREAMS}{each.step.name}" if each.step.action == MOVE else each.step.name
        for each in planned
        if each.step.action not in (UNDROP, REFRESH)
    ]


def _with_whole_tables(planned: list[_Planned]) -> list[_Planned]:
    """Leave out rejects whose table is dropped: they go with it."""
    dropped = {each.step.name for each in planned if each.step.action == DROP}
    return [each for each in planned if each.step.name.removesuffix(f"/{REJECTS}") not in dropped - {each.step.name}]


def _planned(name: str, then: Then) -> _Planned | None:
    """Return the outcome for a table or a stream; None where nothing changes."""
    if name.startswith(STREAMS):
        return _stream_moved(name, then)
    handle, now = then.handle, then.now
    if not then.changed:
        return None
    gone = is_dropped(now.metadata.configuration)
    if then.state is None or is_dropped(then.state.metadata.configuration):
        return None if gone else _Planned(RestoreStep(name, DROP), lambda tables: tables.drop(name))
    target = Snapshot(then.state, handle.root, name, handle.store)
    if gone:
        check_no_view(handle.store, name)
        table = _dropped_since(name, then)
        last = handle.log.at(table.version - 1)

        def bring_back(tables: StagedTables) -> None:
            staged = tables.undrop(name, last, table)
            if not is_derived(target.properties) and target.version != last.version:
                restore_to(staged, target, then.held)

        return _Planned(RestoreStep(name, UNDROP, target.version), bring_back)
    if in_gap(version_gaps(now.metadata.configuration), target.version):
        raise Invalid(
            f"the lake cannot be restored: table {name} was dropped and created again since then, and "
            f"{other_table_message(name, target.version)}: drop it, and bring the earlier one back with undrop"
        )
    if is_derived(target.properties) or is_derived(now.metadata.configuration):
        return _Planned(RestoreStep(name, REFRESH), lambda _: None)
    current = Snapshot(now, handle.root, name, handle.store)
    if plan_restore(current, target).empty:
        return None
    return _Planned(RestoreStep(name, RESTORE, target.version), partial(_restored, name, target, then.held))


def _restored(name: str, target: Snapshot, held: frozenset[str], tables: StagedTables) -> None:
    restore_to(tables.handle(name), target, held)


def _dropped_since(name: str, then: Then) -> DroppedTable:
    """Return the record of the drop of the table that was there then. Raises `VersionExpired`."""
    assert then.state is not None  # noqa: S101 - the caller has looked
    known = dropped_tables(then.now.metadata.configuration)
    drop = next((each for each in known if each.version > then.state.version), None)
    if drop is None or drop.table_id != then.state.metadata.id or drop.version <= oldest_readable(then.now):
        raise VersionExpired(
            f"the lake cannot be restored: vacuum has deleted files of table {name}, which was dropped"
        )
    return drop


def _stream_moved(name: str, then: Then) -> _Planned | None:
    """Return what gives a stream its position of then: what it gave since, its table gives no more, or again."""
    if not then.changed or then.state is None:
        return None
    was, now = (each.domains.get(streams.POSITION) for each in (then.state, then.now))
    gone = any(is_dropped(each.metadata.configuration) for each in (then.state, then.now))
    if gone or was == now or then.state.metadata.id != then.now.metadata.id:
        return None
    plain = name.removeprefix(STREAMS)
    position = streams.stream_of(Snapshot(then.state, then.handle.root, name)).position
    return _Planned(
        RestoreStep(plain, MOVE, position),
        lambda tables: tables.stage_stream(plain, partial(_moved_back, was, position)),
    )


def _moved_back(was: DomainMetadata | None, position: int, stream: streams.StreamState, now_ms: int) -> Changes:
    changes = streams.moved(stream, position, streams.MOVE_STREAM, now_ms)
    if was is None:  # it was never read, and may have to begin with the rows of its table
        changes.domains = [DomainMetadata(streams.POSITION, "", removed=True)]
    return changes


def restore_as_asked(
    catalog: WritableCatalog,
    timestamp: datetime | str | None = None,
    offset: str | int | None = None,
    tag: str | None = None,
    *,
    dry_run: bool = False,
    check: Callable[[str], object] = lambda _: None,
) -> LakeRestore:
    """Restore a lake to a moment, to how long ago it was, or to a tag of the lake. Raises what `restore_lake` does."""
    if sum(each is not None for each in (timestamp, offset, tag)) != 1:
        raise Invalid("restore: give one of timestamp, offset and tag")
    if tag is not None:
        keeper = find_keeper(catalog.store, None, TAG, tag)
        if keeper is None or not keeper.is_live(catalog.clock.now_ms()):
            raise VersionNotFound(f"the lake has no tag {tag!r:.100}")
        at = datetime_of(keeper.moment)
        return restore_lake(catalog, at, dry_run=dry_run, check=check, then_of=partial(_tagged, catalog, keeper))
    at = moment_ago(offset, catalog.clock) if offset is not None else _moment(timestamp)
    return restore_lake(catalog, at, dry_run=dry_run, check=check)


def _tagged(catalog: WritableCatalog, keeper: Keeper, names: Sequence[str]) -> dict[str, Then]:
    """Return logs by name as a tag of the lake has them."""

    def then(name: str) -> Then:
        handle = catalog.log_handle(name)
        now = handle.newest(dropped=True).state
        if handle.attached_place is not None:
            return Then(handle, now, now)
        try:
            at = kept_at(handle, keeper)
            return Then(handle, now, at.shown, at.held)
        except TableNotFound:
            return Then(handle, now, None)

    return dict(zip(names, catalog.store.map(then, names), strict=True))


def _moment(timestamp: datetime | str | None) -> datetime:
    return datetime_of(milliseconds(timestamp))
