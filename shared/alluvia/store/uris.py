"""URIs and absolute paths, and which of them are below a store's root."""

from __future__ import annotations

import os
import re
from pathlib import Path
from urllib.parse import unquote

from alluvia.errors import Invalid

_LOCAL = re.compile(r"^file:/+", re.IGNORECASE)
_ONE_SLASH = re.compile(r"([a-z][a-z0-9+.-]+):/(?!/)", re.IGNORECASE)
_BUCKET = re.compile(r"^s3[an]?://", re.IGNORECASE)


def plain_uri(uri: str) -> str:
    """Return a path or URI as given, but `file:/a`, as Spark and Hadoop write it, as `file:///a`.

    Raises `Invalid` for another scheme with one slash, such as `dbfs:/a`, which would be a folder of that name.
    """
    found = _ONE_SLASH.match(uri)
    if found is None:
        return uri
    if found[1].lower() != "file":
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
