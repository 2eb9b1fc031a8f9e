"""The public API: queries that a lake publishes, for callers of their URLs."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING

from alluvia.api.lake_catalog import OfCatalog
from alluvia.errors import Invalid

if TYPE_CHECKING:
    from datetime import timedelta

    from alluvia.query.published import PublishedQuery


class LakeQueries(OfCatalog):
    """`publish_query`, `link_query` and `unpublish_query`."""

    def publish_query(self, name: str, query: str, parameters: Mapping[str, str] | None = None) -> PublishedQuery:
        """Publish a SELECT, for callers of its `url`. The next version replaces one of that name.

        `parameters` has the types of `$name`, by name: `{"path": "string", "n": "int=10"}` with a default. Callers need
        the right to read its tables, or the scope `query:<name>`. Raises `Invalid`, `TableNotFound`, and `Conflict`
        after a lost race.
        """
        from alluvia.query import published

        return published.publish(self.catalog, name, query, parameters or {})

    def link_query(
        self,
        name: str,
        values: Mapping[str, str] | None = None,
        *,
        expires: timedelta | str = "7d",
        format: str = "csv",  # noqa: A002 - the name that queries' requests have
    ) -> str:
        """Return a link to a published query, with the values of some parameters fixed, for browsers and spreadsheets.

        Its holder gets the rows, until it expires or `alluvia token revoke` ends it. It begins with the address in
        `$ALLUVIA_URL`; without one it is a path. Needs a key for tokens on this machine; a lake without keys gets its
        first. Raises `Invalid`.
        """
        from alluvia.access.issuing import ready_key
        from alluvia.delta.arguments import duration_ms
        from alluvia.query import formats, query_links
        from alluvia.query.published import address_in, published_query

        store, clock = self.catalog.store, self.catalog.clock
        lasts_ms = duration_ms(expires) if isinstance(expires, str) else expires.total_seconds() * 1000
        if lasts_ms is None:
            raise Invalid(f"expires: {expires!r:.100} is not a duration, such as 7d")
        address = address_in(os.environ) or ""
        rights = query_links.link_rights(published_query(store, name), values or {})

        path, _ = query_links.make_link(
            store,
            clock,
            lambda: ready_key(store, clock, os.environ)[0],
            rights,
            formats.format_named(format),
            int(lasts_ms // 1000),
        )
        return f"{address}{path}"

    def unpublish_query(self, name: str) -> PublishedQuery:
        """Withdraw a published query. Raises `Invalid` if there is none of that name."""
        from alluvia.query import published

        return published.unpublish(self.catalog, name)
