"""Keepers: what needs versions of a table that its own retention would take: tags, clones and branches. I/O.

A keeper is one object of the lake, written with put-if-absent:

- `_alluvia/kept/<table>/<kind>/<name>.json` keeps one version of a table,
- `_alluvia/kept/_lake/<kind>/<name>.json` keeps all tables as they are at a moment (no table can be named `_lake`),
- `…/_pending/<id>.json` is either of them before its owner knows that no vacuum has missed it,
- `_alluvia/kept/<table>/moment/<id>@<version>` is a pin: it says which version of a table the moment of a keeper of the
  lake means, since the table's log may forget it.

`operations/references/pinned_versions.py` says how a keeper is put so that no vacuum misses it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import field, replace
from weakref import WeakKeyDictionary

import orjson

from alluvia.clock import Clock
from alluvia.delta.log.committer import put_once
from alluvia.errors import BranchGone, Corrupt, Invalid, ObjectNotFound
from alluvia.lazy_dataclasses import dataclass
from alluvia.store import ObjectInfo, Store

TAG, CLONE, BRANCH = "tag", "clone", "branch"
KEPT = "_alluvia/kept/"
"""Start of the keys of keepers, from the lake's root."""
LAKE = "_lake"
OWNER, OWNER_ID = "clone", "cloneId"
"""What a keeper's details call the clone that it is for, and the id in the clone's metadata."""
FILES = "files"
"""Of a keeper's details: the keys that it keeps below its table's root, as JSON, in the place of a version."""
DISCARDED = "discarded"
"""Of a branch's details: there from when it is discarded on, whatever the time is, until its keeper is deleted."""
_MOMENT = "moment"
_PENDING = "_pending"
"""It sorts before the kinds: a listing that comes too late to see a pending keeper sees what took its place."""
SEEN_MAX = 10_000
_SEEN: WeakKeyDictionary[Store, dict[tuple[str, str], Keeper]] = WeakKeyDictionary()
"""Keepers that were read from a store, by their keys and etags."""
_NAME = re.compile(r"[a-z0-9][a-z0-9_.-]{0,63}")
_KEY = re.compile(rf"{KEPT}(?P<place>.+)/(?:{TAG}|{CLONE}|{BRANCH}|{_PENDING})/[^/]+\.json")
_PIN = re.compile(rf"{KEPT}(?P<place>.+)/{_MOMENT}/(?P<id>[^/@]+)@\d+")


@dataclass(frozen=True, slots=True)
class Keeper:
    """What keeps versions: `version` of the table `table` with the id `table_id`, or, without a table, all of a lake.

    `id` is new each time that a keeper is put. A keeper of the lake keeps the moment `moment_ms`, by the store's clock:
    if that is None, the moment at which the store took the keeper (`stored_ms`). From `expires_ms` on, in ms since the
    Unix epoch, it keeps nothing. `by` says who made it, `details` what the kind needs. It is `pending` until its owner
    knows that no vacuum has missed it.
    """

    kind: str
    name: str
    table: str | None = None
    id: str = ""
    table_id: str = ""
    version: int | None = None
    moment_ms: int | None = None
    created_ms: int = 0
    expires_ms: int | None = None
    by: str | None = None
    details: Mapping[str, str] = field(default_factory=dict)
    pending: bool = False
    stored_ms: int = 0

    @property
    def key(self) -> str:
        """Return its key in the lake."""
        if self.pending:
            return f"{KEPT}{self.table or LAKE}/{_PENDING}/{self.id}.json"
        return keeper_key(self.table, self.kind, self.name)

    @property
    def moment(self) -> int:
        """Return the moment that a keeper of the lake keeps, in ms by the store's clock."""
        return self.stored_ms if self.moment_ms is None else self.moment_ms

    def is_live(self, now_ms: int) -> bool:
        """Whether it has not expired."""
        return self.expires_ms is None or now_ms < self.expires_ms

    def __str__(self) -> str:
        name = self.details.get(OWNER, self.name)
        return f"{self.kind} {name}" if self.table is None else f"{self.kind} {name} of {self.table}"


class Keepers:
    """The keepers of one table and of its lake, as a listing found them.

    `pins` are the versions that are on record, by the keepers' ids; `pin_keys` are the keys of these objects.
    """

    def __init__(self, keepers: Sequence[Keeper] = (), pin_keys: Mapping[str, str] | None = None) -> None:
        self.keepers = keepers
        self.pin_keys = pin_keys or {}
        self.pins = {each: int(key.rpartition("@")[2]) for each, key in self.pin_keys.items()}

    def live(self, now_ms: int) -> list[Keeper]:
        """Return those that have not expired, pending ones too."""
        return [keeper for keeper in self.keepers if keeper.is_live(now_ms)]


def kept_version(keeper: Keeper, pins: Mapping[str, int], stored_ms: Mapping[int, int], oldest: int) -> int | None:
    """Return the version of a table that a keeper keeps; None for files alone, and without a log at its moment. Pure.

    `stored_ms` says when the store took the table's commits, as in `Log.stored_ms`, and `oldest` is the oldest
    version that can be read. The version of a moment is the newest that was taken at or before it; None also where the
    log has forgotten the commits that come next, one of which may be that version. A keeper that records the moment at
    which it was put cannot mean a version that a vacuum had given up before it saw the keeper.
    """
    if FILES in keeper.details:
        return None
    if keeper.version is not None:
        return keeper.version
    if keeper.id in pins:
        return pins[keeper.id]
    newest = max((version for version, ms in stored_ms.items() if ms <= keeper.moment), default=None)
    if newest is None or keeper.moment_ms is None:
        return None if newest is None else max(newest, oldest)
    return newest if newest + 1 in stored_ms or newest == max(stored_ms) else None


def keeper_key(table: str | None, kind: str, name: str) -> str:
    """Return the key of a keeper of a table, or of the lake for None."""
    return f"{KEPT}{table or LAKE}/{kind}/{name}.json"


def pin_key(table: str, keeper: Keeper, version: int) -> str:
    """Return the key of the object that says which version of a table a keeper of the lake means."""
    return f"{KEPT}{table}/{_MOMENT}/{keeper.id}@{version}"


def is_keeper_name(name: object) -> bool:
    """Whether a keeper can have a name."""
    return isinstance(name, str) and _NAME.fullmatch(name) is not None and not name.endswith(".")


def check_keeper_name(kind: str, name: object) -> None:
    """Raise `Invalid` for a text that cannot be a keeper's name."""
    if not is_keeper_name(name):
        raise Invalid(
            f"{kind} name {name!r:.100}: use up to 64 lower-case letters, digits, '_', '-' and '.', "
            "starting with a letter or a digit and not ending with '.'"
        )


def find_keeper(store: Store, table: str | None, kind: str, name: str) -> Keeper | None:
    """Return a keeper; None if there is none. One GET, and a HEAD for one that keeps the moment at which it was put."""
    tagged = find_tagged(store, table, kind, name)
    return None if tagged is None else tagged[0]


def check_branch(store: Store, clock: Clock, name: str, branch_id: str) -> None:
    """Raise `BranchGone` unless a branch is there, by its name and id. One GET.

    A discard first marks the keeper, and then deletes what is written on the branch. So a commit that is made
    before this look, which finds nothing of that, came before the discard; any other must not count as made.
    """
    why = "was discarded"
    with suppress(ObjectNotFound):
        key = keeper_key(None, BRANCH, name)
        keeper = _parse(key, store.get(key), 0)
        if keeper.id == branch_id and DISCARDED not in keeper.details:
            if keeper.is_live(clock.now_ms()):
                return
            why = "expired"
    raise BranchGone(f"branch {name!r} {why} meanwhile, and what was just written on it is lost: cut another branch")


def find_tagged(store: Store, table: str | None, kind: str, name: str) -> tuple[Keeper, str] | None:
    """Return the same, with the tag of its content for `Store.put_if_same`."""
    check_keeper_name(kind, name)
    key = keeper_key(table, kind, name)
    try:
        data, tag = store.get_tagged(key)
        keeper = _parse(key, data, 0)
        if table is None and keeper.moment_ms is None:
            info = store.head(key)
            if info is None:
                return None
            keeper = _parse(key, data, info.modified_ms)
    except ObjectNotFound:
        return None
    return keeper, tag


def list_keepers(store: Store, table: str | None, kind: str) -> list[Keeper]:
    """Return the keepers of a kind, of a table or of the lake, in the order of their names. One LIST, a GET for each.

    Raises `Corrupt`.
    """
    return _read(store, store.list(f"{KEPT}{table or LAKE}/{kind}/"))


def all_keepers(store: Store, kind: str) -> list[Keeper]:
    """Return the keepers of a kind, of all tables and of the lake. One LIST for 1,000 objects, a GET for each."""
    return _read(store, [info for info in store.list(KEPT) if f"/{kind}/" in info.key])


def keepers_of(store: Store, root: str, table: str) -> Keepers:
    """Return the keepers of a table whose folder is `root`, and of its lake.

    Two LISTs, and a GET for each keeper that this process has not seen. A table that was opened without its lake has
    none. Raises `Corrupt`.
    """
    # The lake's come last: a pin that is listed is of a keeper that is listed too, or was released.
    if root != f"{table}/":
        return Keepers()
    infos = [*store.list(f"{KEPT}{table}/"), *store.list(f"{KEPT}{LAKE}/")]
    pins = {match["id"]: info.key for info in infos if (match := _PIN.fullmatch(info.key)) and match["place"] == table}
    return Keepers(_read(store, [info for info in infos if _is_of(info, table)]), pins)


def find_pin(store: Store, table: str, keeper: Keeper) -> int | None:
    """Return the version of a table that is on record for a keeper of the lake; None for none. One LIST."""
    info = next(store.list(f"{KEPT}{table}/{_MOMENT}/{keeper.id}@"), None)
    return None if info is None else int(info.key.rpartition("@")[2])


def put_keeper(store: Store, clock: Clock, keeper: Keeper) -> bool:
    """Put a keeper; False if its name is taken. Raises `CommitUnknown` and `Unavailable`."""
    data = _encode(keeper)

    def read() -> bytes | None:
        try:
            return store.get(keeper.key)
        except ObjectNotFound:
            return None

    what = str(keeper)
    if put_once(store, clock, keeper.key, data, what=what, read=read, is_ours=lambda it: it == data) is not None:
        return False
    store.check_lasts()
    return True


def put_over(store: Store, keeper: Keeper, tag: str) -> bool:
    """Replace the keeper that has an ETag; False if it has changed or gone."""
    return store.put_if_same(keeper.key, _encode(keeper), tag)


def release(store: Store, keeper: Keeper) -> None:
    """Delete a keeper: from now on, vacuum may take what it has kept."""
    store.delete([keeper.key])


def _is_of(info: ObjectInfo, table: str) -> bool:
    match = _KEY.fullmatch(info.key)
    return match is not None and match["place"] in (table, LAKE)


def _read(store: Store, infos: Iterable[ObjectInfo]) -> list[Keeper]:
    """Return keepers, without those that were deleted since they were listed. A process reads each once a store."""
    seen = _SEEN.setdefault(store, {})
    if len(seen) > SEEN_MAX:
        seen.clear()

    def read(info: ObjectInfo) -> Keeper | None:
        known = seen.get((info.key, info.etag)) if info.etag else None
        if known is not None:
            return replace(known, stored_ms=info.modified_ms)
        try:
            keeper = seen[info.key, info.etag] = _parse(info.key, store.get(info.key), info.modified_ms)
        except ObjectNotFound:
            return None
        return keeper

    return [keeper for keeper in store.map(read, infos) if keeper is not None]


def _encode(keeper: Keeper) -> bytes:
    return orjson.dumps(
        {
            "id": keeper.id,
            "kind": keeper.kind,
            "name": keeper.name,
            "table": keeper.table,
            "tableId": keeper.table_id,
            "version": keeper.version,
            "momentMs": keeper.moment_ms,
            "createdMs": keeper.created_ms,
            "expiresMs": keeper.expires_ms,
            "by": keeper.by,
            "details": dict(keeper.details),
        }
    )


def _parse(key: str, data: bytes, stored_ms: int) -> Keeper:
    try:
        body = orjson.loads(data)
        keeper = Keeper(
            str(body["kind"]),
            str(body["name"]),
            None if body["table"] is None else str(body["table"]),
            str(body["id"]),
            str(body["tableId"]),
            _number(body["version"]),
            _number(body["momentMs"]),
            int(body["createdMs"]),
            _number(body["expiresMs"]),
            None if body["by"] is None else str(body["by"]),
            {str(name): str(text) for name, text in body["details"].items()},
            f"/{_PENDING}/" in key,
            stored_ms,
        )
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise Corrupt(f"{key} is not a keeper of this library") from error
    if keeper.key != key or (keeper.table is None) != (keeper.version is None):
        raise Corrupt(f"{key} is not a keeper of this library: it says that it is {keeper}")
    return keeper


def _number(value: object) -> int | None:
    return None if value is None else int(str(value))
