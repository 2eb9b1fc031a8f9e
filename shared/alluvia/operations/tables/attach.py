"""Give a Delta table elsewhere a name in a lake, to read it there: one commit in a log of that name, without files.

Being a commit to the log that any table of the name would have, it excludes another table of the name, and detaching is
a drop of it: a later table goes on with the log, and nobody's cache takes one for the other.
"""

from __future__ import annotations

from alluvia.clock import Clock
from alluvia.commit.handle import TableHandle
from alluvia.commit.transaction import Commit
from alluvia.delta.arguments import check_place
from alluvia.delta.attached import attached_from
from alluvia.delta.lineage import is_dropped
from alluvia.delta.log.actions import Metadata
from alluvia.delta.properties import ATTACHED
from alluvia.delta.protocols import default_properties
from alluvia.errors import Invalid, TableExists, TableNotFound
from alluvia.operations.tables.create import create
from alluvia.operations.tables.drop import drop_table
from alluvia.operations.tables.drop_plan import FirstVersion
from alluvia.store import Store
from alluvia.store.outside import is_outside
from alluvia.store.uris import canonical_place


def attach(handle: TableHandle, rejects: TableHandle | None, uri: object, clock: Clock) -> None:
    """Attach the Delta table at a path or URI outside the lake. One LIST and one PUT besides opening it.

    Raises `TableExists` if the name is taken, `TableNotFound` if there is no table at the place, `Invalid` for a place
    in the lake, and `Forbidden` for one that may not be read.
    """
    check_place("uri", uri)
    place = canonical_place(str(uri)).rstrip("/")
    own = handle.own()
    columns = _columns_at(own.store, place, clock)
    configuration = {**default_properties("alluvia"), ATTACHED: place}
    metadata = Metadata(clock.new_id(), columns, (), configuration, clock.now_ms())
    if not create(own, metadata, exist_ok=True, rejects=rejects, first=FirstVersion("ATTACH", {"uri": place})):
        raise TableExists(f"table {handle.name!r} already exists: choose another name for what you attach")


def _columns_at(store: Store, place: str, clock: Clock) -> str:
    """Return the columns of the table at a place, as its log has them. Raises what opening it does."""
    key = store.reach(place)
    if not is_outside(key):
        raise Invalid(f"{place} is in this lake: use it by its name, or make another table of it with clone")
    other = TableHandle(store, f"{key}/", place, clock, follows=False)
    try:
        metadata = other.newest(dropped=True).state.metadata
    except TableNotFound as error:
        raise TableNotFound(f"there is no Delta table at {place}") from error
    if is_dropped(metadata.configuration):
        raise TableNotFound(f"the table at {place} was dropped")
    if attached_from(metadata) is not None:
        raise Invalid(f"the table at {place} is itself attached, from {attached_from(metadata)}: attach that")
    return metadata.schema_string


def detach(handle: TableHandle) -> Commit:
    """Take an attached table's name out of the lake; the table stays as it is. Raises `TableNotFound` and `Invalid`.

    `undrop_table` brings the name back.
    """
    own = handle.own()
    own.newest(dropped=True)
    if own.log.state is not None and attached_from(own.log.state.metadata) is None:
        own.newest()
        raise Invalid(f"table {handle.name!r} is not attached: DROP TABLE drops a table of the lake itself")
    return drop_table(own)
