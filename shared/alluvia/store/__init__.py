"""Object stores: one contract, three places to keep a lake, and wrappers of it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from urllib.parse import unquote, urlsplit

from alluvia.clock import Clock
from alluvia.errors import Invalid
from alluvia.extras import needing
from alluvia.store.base import Address, ByteRange, ListedPage, ObjectInfo, OldVersion, PutResult, Store
from alluvia.store.counting import CountingStore
from alluvia.store.directory import DirectoryStore
from alluvia.store.memory import MemoryStore
from alluvia.store.outside import OutsideStore, WideStore
from alluvia.store.uris import Links, plain_uri
from alluvia.store.wrapper import Wrapper

__all__ = [
    "Address",
    "ByteRange",
    "CountingStore",
    "DirectoryStore",
    "ListedPage",
    "MemoryStore",
    "ObjectInfo",
    "OldVersion",
    "PutResult",
    "Store",
    "WideStore",
    "Wrapper",
    "open_reaching_store",
    "open_store",
    "open_wide_store",
]

_memory: dict[str, MemoryStore] = {}


def open_store(uri: str, clock: Clock, **options: str) -> Store:
    """Open the store that a lake's URI names.

    `s3://bucket/prefix` (options `endpoint_url`, `region`, `access_key_id`, `secret_access_key`, `session_token`),
    `file:///path`, `file:/path` or a plain path, or `memory://name`, which lives as long as the process. `links` says
    how far symbolic links below a `file:` URI lead (`Links`). Raises `Invalid` for another scheme or an option that the
    scheme does not have.
    """
    uri = plain_uri(uri)
    scheme = urlsplit(uri).scheme if "://" in uri else ""
    if scheme == "s3":
        parts = urlsplit(uri)
        if not parts.netloc or parts.query or parts.fragment:
            raise Invalid(f"the lake URI {uri!r} must have the form s3://bucket/prefix")
        try:
            with needing("aws", "a lake on S3"):
                from alluvia.store.s3.bucket import S3Store

                return S3Store(parts.netloc, parts.path.strip("/"), clock, **options)
        except TypeError as error:
            raise Invalid(f"unknown option for an S3 lake among {sorted(options)}") from error
    links = Links.OF_FOLDERS
    if scheme == "file" and options == Links.INSIDE.options:
        links, options = Links.INSIDE, {}
    if options:
        raise Invalid(f"{uri!r} takes no options: {sorted(options)} are valid only for s3:// lakes")
    if scheme == "memory":
        return _memory.setdefault(uri, MemoryStore(uri.removeprefix("memory://"), clock))
    if scheme == "file":
        host, _, path = uri.partition("://")[2].partition("/")  # no ? or # ends a path: both are characters of names
        if host not in ("", "localhost"):
            raise Invalid(f"the lake URI {uri!r} names another machine: use file:///path")
        return DirectoryStore(Path(unquote(f"/{path}")), links)
    if scheme or not uri:
        raise Invalid(f"the lake URI {uri!r} must be s3://bucket/prefix, file:///path, memory://name, or a path")
    return DirectoryStore(Path(uri).expanduser())


def open_reaching_store(uri: str, clock: Clock, outside: Sequence[str] | None, **options: str) -> Store:
    """Open the store of a lake that may refer to places outside it: below some URIs, or anywhere if `outside` is None.

    Places on S3 are read with the same options.
    """

    def open_place(place: str) -> Store:
        if "://" not in place:
            return DirectoryStore(Path(place), Links.INSIDE)
        return open_store(place, clock, **(options if place.startswith("s3://") else {}))

    return OutsideStore(open_store(uri, clock, **options), open_place, outside)


def open_wide_store(uri: str, clock: Clock, **options: str) -> Store:
    """Open the store that a URI names, for a table that may name files elsewhere in its bucket or file system."""
    store = open_store(uri, clock, **options)
    if isinstance(store, DirectoryStore):
        return WideStore(store, DirectoryStore(Path("/"), Links.ANYWHERE))
    if uri.startswith("s3://"):
        return WideStore(store, open_store(f"s3://{urlsplit(uri).netloc}", clock, **options))
    return store
