"""Definer's rights: what a published query lends to callers who may run it by name. Pure.

A published query keeps what its publisher might read. Through it others may read that, and never more.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from alluvia.access.claims import plain_grant, read_grants
from alluvia.access.rights import READ, Grant, Rights
from alluvia.errors import Invalid
from alluvia.table_names import REJECTS

_EVERYTHING = Grant(frozenset({READ}), ("*", f"*/{REJECTS}"))


def plain_definer(rights: Rights | None) -> dict[str, Any] | None:
    """Return what a publisher may read as JSON has it; None for one that may read all."""
    if rights is None:
        return None
    grants = [plain_grant(grant) for grant in _reads(rights)]
    return {"grants": grants, "subject": rights.subject, "key": rights.key, "expires": rights.expires_s}


def read_definer(found: object) -> Rights | None:
    """Read what `plain_definer` has written. Raises `Invalid`, `KeyError`, `TypeError`."""
    if found is None:
        return None
    if not isinstance(found, dict) or not isinstance(found["expires"], int | None):
        raise Invalid("the rights of whoever published it cannot be read")
    grants = read_grants(found["grants"])
    return Rights(grants, str(found["subject"]), str(found["key"]), expires_s=found["expires"])


def lent(definer: Rights | None, limits: Iterable[Grant], caller: Rights) -> Rights:
    """Return what a caller may read through a published query: what its publisher might, within `limits`.

    `limits` are the grants that let the caller run it, whose row filters and hidden columns hold for all tables.
    """
    reads = [_EVERYTHING] if definer is None else _reads(definer)
    narrowed = [
        Grant(each.operations, each.tables, limit.where, limit.hide)
        for limit in limits
        if limit.where is not None or limit.hide
        for each in reads
    ]
    return Rights((*reads, *narrowed), caller.subject, caller.key, query_bytes=caller.query_bytes)


def _reads(rights: Rights) -> list[Grant]:
    found = (grant for grant in rights.grants if READ in grant.operations)
    return [Grant(frozenset({READ}), grant.tables, grant.where, grant.hide) for grant in found]
