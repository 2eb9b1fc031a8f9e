"""Give a Delta table elsewhere a name in a lake, to read it there: one commit in a log of that name, without files.

Being a commit to the log that any table of the name would have, it excludes another table of the name, and detaching is
a drop of it: a later table goes on with the log, and no cache takes one for the other.
"""

from __future__ import annotations

import re

import orjson

from alluvia.clock import Clock
from alluvia.commit.handle import TableHandle
from alluvia.commit.transaction import Commit
from alluvia.commit.warm_table import WarmTable
from alluvia.delta.arguments import check_place
from alluvia.delta.lineage import is_dropped
from alluvia.delta.log.actions import Metadata
from alluvia.delta.partitioning.values import is_hidden
from alluvia.delta.places import attached_from
from alluvia.delta.properties import ATTACHED, EXTERNAL
from alluvia.delta.protocols import default_properties
from alluvia.errors import Corrupt, Invalid, TableExists, TableNotFound
from alluvia.lazy_dataclasses import dataclass
from alluvia.operations.tables.create import create
from alluvia.operations.tables.drop import drop_table
from alluvia.operations.tables.drop_plan import FirstVersion
from alluvia.store import ObjectInfo, Store
from alluvia.store.outside import is_outside
from alluvia.store.uris import canonical_place

FILES_MAX = 10_000
_WILD = re.compile(r"[*?\[]")
_REPEATED = re.compile(r"(?:/\*\*)+(?=/\*\*(?:/|\Z))")


@dataclass(frozen=True, slots=True)
class ExternalPlace:
    """Where the files of an external table are: paths, URIs or globs, absolute; and their format.

    has_schema: whether the table's columns were declared, and not taken from the files.
    """

    locations: tuple[str, ...]
    kind: str
    has_schema: bool = False

    def to_text(self) -> str:
        """Return the property that says so."""
        folders = sorted({folder_of(location) for location in self.locations})
        said = {"locations": list(self.locations), "format": self.kind, "folders": folders}
        return orjson.dumps(said | ({"schema": True} if self.has_schema else {})).decode()


def place_of(text: str) -> ExternalPlace:
    """Return what a property says. Raises `Corrupt`."""
    try:
        body = orjson.loads(text)
        return ExternalPlace(tuple(map(str, body["locations"])), str(body["format"]), body.get("schema") is True)
    except (ValueError, KeyError, TypeError) as error:
        raise Corrupt(f"property {EXTERNAL} cannot be read: only this library may set it") from error


def absolute(location: object) -> str:
    """Return a location that a user has typed in its one absolute form."""
    if not isinstance(location, str) or not location or "\0" in location:
        raise Invalid(f"location: expected a path, a URI or a glob, got {location!r:.100}")
    return canonical_place(location)


def reach(store: Store, place: ExternalPlace) -> None:
    """Let a store read where the files are. Raises `Invalid`, and `Forbidden` where a server may not."""
    for location in place.locations:
        key = store.reach(folder_of(location))
        if not is_outside(key):
            raise Invalid(f"{location} is in this lake: make a table of it with lake.convert, or upload it")


def folder_of(location: str) -> str:
    """Return the folder below which all files of a location are."""
    wild = _WILD.search(location)
    folder = (location if wild is None else location[: wild.start()]).rpartition("/")[0]
    if not folder or folder.rstrip("/").endswith(":"):
        raise Invalid(f"location: {location!r:.200} must name a folder, or a bucket, before any wildcard")
    return folder


def find_files(store: Store, place: ExternalPlace) -> list[ObjectInfo]:
    """Return the files of a place, in the order of their paths. One HEAD for an exact one, a LIST for a glob.

    Raises `Invalid` where there is none, or more than `FILES_MAX`.
    """
    reach(store, place)
    objects: dict[str, ObjectInfo] = {}
    for location in place.locations:
        infos = _matching(store, location) if _WILD.search(location) else _exact(store, location)
        if not infos:
            raise Invalid(f"location: there is no file {location}")
        objects |= {info.key: info for info in infos}
        if len(objects) > FILES_MAX:
            raise Invalid(f"location: more than {FILES_MAX} files: make a table of them with lake.convert")
    return [objects[key] for key in sorted(objects)]


def _exact(store: Store, location: str) -> list[ObjectInfo]:
    info = store.head(location)
    return [] if info is None else [ObjectInfo(location, info.size, info.modified_ms, info.etag)]


def _matching(store: Store, location: str) -> list[ObjectInfo]:
    folder = folder_of(location)
    pattern = glob_pattern(location)
    start = len(folder) + 1
    infos: list[ObjectInfo] = []
    for info in store.list(f"{folder}/"):
        if info.size and not is_hidden(info.key[start:]) and pattern.fullmatch(info.key):
            infos.append(info)
        if len(infos) > FILES_MAX:
            break
    return infos


def glob_pattern(location: str) -> re.Pattern[str]:
    """Return what a glob matches: `*` and `?` stay within a folder, `/**/` does not, `[…]` is a set of characters.

    Whatever the glob, matching takes a time that grows with its length times the path's. What lies between two stars is
    taken where it first fits, for good: were a later place to do, this one does as well.
    """
    first, *others = _REPEATED.sub("", location).split("/**/")
    last = others.pop() if others else None
    parts = [_folders(first)]
    parts += [f"/(?>(?:[^/]+/)*?{_folders(each)}(?=/))" for each in others]
    if last is not None:
        parts.append("/.*" if last == "**" else f"/(?:[^/]+/)*{_folders(last)}")
    try:
        return re.compile("".join(parts))
    except re.error as error:
        raise Invalid(f"location: {location!r:.200} is not a valid glob: {error}") from error


def _folders(glob: str) -> str:
    """Return what a glob without `/**/` matches."""
    *names, last = glob.split("/")
    return "/".join([*map(_name, names), ".*" if last == "**" else _name(last)])


def _name(glob: str) -> str:
    """Return what a glob matches as the name of a file or a folder."""
    between = [""]
    at = 0
    while at < len(glob):
        sign = glob[at]
        end = glob.find("]", at + 2)
        if sign == "*":
            between.append("")
        elif sign == "?":
            between[-1] += "[^/]"
        elif sign == "[" and end > 0:
            inner = glob[at + 1 : end]
            negated = inner.startswith(("!", "^"))
            between[-1] += f"[{'^/' if negated else ''}{_set(inner[negated:])}]"
            at = end
        else:
            between[-1] += re.escape(sign)
        at += 1
    first, *others = between
    stars = [f"(?>[^/]*?{each})" for each in others[:-1]] + [f"[^/]*{each}" for each in others[-1:]]
    return first + "".join(stars)


def _set(text: str) -> str:
    return re.sub(r"([\\\[\]^&~|])", r"\\\1", text)


def attach(handle: TableHandle, rejects: TableHandle | None, uri: object, clock: Clock) -> None:
    """Attach the Delta table at a path or URI outside the lake. Two LISTs and one PUT besides opening it.

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
    """Return the columns of the table at a place, by its log. Raises what opening it does."""
    key = store.reach(place)
    if not is_outside(key):
        raise Invalid(f"{place} is in this lake: use it by its name, or make another table of it with clone")
    other = WarmTable(store, f"{key}/", place, clock, follows=False)
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
