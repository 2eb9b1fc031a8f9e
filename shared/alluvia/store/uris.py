"""Where stores are: URIs and absolute paths, and symbolic links on the way. Pure but for reading links."""

from __future__ import annotations

import enum
import os
import re
from contextlib import suppress
from pathlib import Path
from typing import NoReturn
from urllib.parse import unquote, urlsplit

from alluvia.errors import Invalid, Unsupported

_DELETED = " (deleted)"


class Links(enum.Enum):
    """What links in a directory may do."""

    ANYWHERE = "anywhere"
    OF_FOLDERS = "of folders"
    """The folders directly below the root, which are tables, may be links. None below them leads out of its table."""
    INSIDE = "inside"
    """As before, and the folders directly below the root are no links."""

    @property
    def options(self) -> dict[str, str]:
        """Return the options with which `open_store` opens a directory so."""
        return {"links": self.value}


def real_path(path: str | Path, descriptor: int | None = None) -> str | None:
    """Return the path of a file without links, None if there is none; of a descriptor, that of the opened file."""
    if not _HAS_DESCRIPTORS:
        return os.path.realpath(path) if os.path.lexists(path) else None
    opened = None
    try:
        if descriptor is None:
            opened = descriptor = os.open(path, os.O_PATH)
        return os.readlink(f"/proc/self/fd/{descriptor}").removesuffix(_DELETED)  # noqa: PTH115 - a Path takes longer
    except OSError:
        return os.path.realpath(path) if os.path.lexists(path) else None
    finally:
        if opened is not None:
            os.close(opened)


def is_loop(link: str) -> bool:
    """Whether a link leads to nothing, to itself, or to a folder that it lies in, whose listing would never end.

    A folder that it lies in may be one by way of another link.
    """
    with suppress(OSError, RuntimeError):  # the latter before Python 3.13
        there = Path(link).resolve(strict=True)
        return any(parent.resolve().is_relative_to(there) for parent in Path(link).parents)
    return True


def refuse(key: str) -> NoReturn:
    """Raise `Unsupported` for a file behind a link that leads too far."""
    raise Unsupported(
        f"{key} is a symbolic link out of its table's folder, or lies behind one, and such links are not followed: "
        "replace it by a copy"
    )


_HAS_DESCRIPTORS = hasattr(os, "O_PATH") and Path("/proc/self/fd").is_dir()


_LOCAL = re.compile(r"^file:/+", re.IGNORECASE)
_ONE_SLASH = re.compile(r"([a-z][a-z0-9+.-]+):/(?!/)", re.IGNORECASE)
_HOST_AND_PORT = re.compile(r"(localhost|[\w-]+(\.[\w-]+)+|\[[0-9a-f:.]+\]):\d{1,5}(/.*)?", re.IGNORECASE)
_BUCKET = re.compile(r"^s3[an]?://", re.IGNORECASE)


def plain_uri(uri: str) -> str:
    """Return a path or URI as given, but `file:/a`, as Spark and Hadoop write it, as `file:///a`.

    Raises `Invalid` for another scheme with one slash, such as `dbfs:/a`, which would be a folder of that name, and for
    the address of a server without its scheme, such as `localhost:8080`, unless there is such a folder.
    """
    if _HOST_AND_PORT.fullmatch(uri) and not os.path.lexists(uri):
        raise Invalid(
            f"the lake URI or path {uri!r} looks like the address of a server: write http://{uri} or https://{uri} "
            f"(./{uri} for a new folder there)"
        )
    match = _ONE_SLASH.match(uri)
    if match is None:
        return uri
    if match[1].lower() != "file":
        expected = f"expected s3://bucket/prefix, file:///path, or a path (./{uri} for a folder there)"
        raise Invalid(f"the lake URI or path {uri!r}: {expected}")
    return f"file://{uri[len('file:') :]}"


def canonical_path(path: str) -> str:
    """Return the one form of a decoded path, however its scheme was written: `file:///a` is `/a`, `s3a://` is `s3://`.

    Relative paths stay as they are: to the Delta protocol, a relative and an absolute path are never the same file.
    """
    if ":/" not in path:
        return path
    return _BUCKET.sub("s3://", _LOCAL.sub("/", path))


def canonical_place(uri: str) -> str:
    """Return the one form of the URI or path of a place, as keys outside a store's root begin; paths become absolute.

    Plain paths are what users type, so they may be relative; those of `file:` URIs are encoded.
    """
    path = canonical_path(unquote(uri) if uri.startswith("file:") else uri)
    return path if "://" in path else os.path.abspath(Path(path).expanduser())  # noqa: PTH100 - it follows no links


def key_below(path: str, root_uri: str) -> str | None:
    """Return the key that a decoded absolute path has in the store at a URI; None if it lies elsewhere."""
    root = canonical_path(unquote(root_uri) if root_uri.startswith("file:") else root_uri).rstrip("/") + "/"
    whole = canonical_path(path)
    return whole[len(root) :] if whole.startswith(root) and len(whole) > len(root) else None


def table_place(uri: str) -> tuple[str, str]:
    """Return the URI of the store that a table is in, and the table's folder there (empty for the root of a bucket)."""
    uri = plain_uri(uri)
    if "://" not in uri:
        path = Path(os.path.abspath(Path(uri).expanduser()))  # noqa: PTH100 - resolve() would follow links
        return str(path.parent), path.name
    scheme, _, rest = uri.partition("://")
    parent, _, name = rest.rstrip("/").rpartition("/")
    if scheme == "file":
        return f"{scheme}://{parent or '/'}", unquote(name)
    return (f"{scheme}://{parent}", name) if parent else (f"{scheme}://{name}", "")


def missing_folder(uri: str) -> str:
    """Return the path of a lake in a directory that does not exist, which may be misspelt; "" for any other."""
    if not uri.startswith("file:"):
        return ""
    path = unquote(urlsplit(uri).path)
    return "" if os.path.isdir(path) else path  # noqa: PTH112 - without pathlib's cost
