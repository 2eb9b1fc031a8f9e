"""Erase rows of a table together with its rejected events, which are kept as they were sent.

A reject matches if the condition holds for the row that its event would have become, as far as its fields can be
converted. Where that does not tell, because the text is not an event or lacks a field, it matches if it contains one of
the texts and numbers of the condition.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import pyarrow as pa

from alluvia.ingest.jsontext import decode_all
from alluvia.ingest.rejects import RAW
from alluvia.ingest.rows import as_far_as_possible
from alluvia.ingest.tables import find_rejects
from alluvia.ingest.values import Fields, RawEvent
from alluvia.operations.catalog import Catalog
from alluvia.operations.erase import erase, prove
from alluvia.operations.erase_keepers import without_rows
from alluvia.operations.erase_log import word_pattern
from alluvia.operations.erase_matching import Find, Matching, matching_rows, matching_texts
from alluvia.operations.erase_report import EraseReport
from alluvia.operations.jobs import delete_jobs
from alluvia.operations.results import delete_results
from alluvia.operations.upload_parts import delete_uploads
from alluvia.table.handle import TableHandle
from alluvia.table.snapshot import Snapshot


def erase_rows(
    catalog: Catalog,
    handle: TableHandle,
    where: str,
    *,
    proof: bool = False,
    before_removal: Callable[[], None] = lambda: None,
    release_tags: bool = False,
) -> EraseReport:
    """Erase the rows of a table, and those of its rejects, for which an SQL condition holds; then search for them.

    Without `proof` nothing is searched. For `before_removal` see `erase`. Raises `Invalid` as that does, before it
    writes anything.
    """
    find = matching_rows(where)
    matching = find(handle.newest())
    rejects = find_rejects(catalog, handle)
    without_rows(handle, matching, release_tags=release_tags)  # nothing is changed where a clone holds a rejected event
    if rejects is not None:
        without_rows(rejects, _rejects_finder(handle, where)(rejects.newest()), release_tags=release_tags)
    delete_uploads(handle.store, handle.name)  # before, so that one that is being completed commits nothing after
    skips = rejects is not None
    done = erase(handle, find, skips_rejects=skips, before_removal=before_removal, release_tags=release_tags)
    delete_results(handle.store)  # of any query, since views and rollups show rows too
    delete_uploads(handle.store, handle.name)
    delete_jobs(handle.store)  # whose queries and errors may have values
    if proof:
        done = replace(done, proof=prove(handle, find, skips_rejects=rejects is not None))
    if rejects is None:
        return done
    find = _rejects_finder(handle, where)
    gone = erase(rejects, find, release_tags=release_tags)
    delete_results(handle.store)  # those with rejects, which were there until now
    delete_jobs(handle.store)
    return replace(done, rejects=replace(gone, proof=prove(rejects, find)) if proof else gone)


def prove_erased(catalog: Catalog, handle: TableHandle, where: str) -> EraseReport:
    """Search a table and its rejects for rows for which an SQL condition holds. Writes nothing."""
    rejects = find_rejects(catalog, handle)
    found = prove(handle, matching_rows(where), skips_rejects=rejects is not None)
    report = EraseReport(found.version, proof=found)
    if rejects is None:
        return report
    found = prove(rejects, _rejects_finder(handle, where))
    return replace(report, rejects=EraseReport(found.version, proof=found))


def _rejects_finder(handle: TableHandle, where: str) -> Find:
    texts = _Texts(matching_rows(where)(handle.newest()))

    def find(rejects: Snapshot) -> Matching:
        columns = tuple(name for name in (RAW, "reason", "event_id", "given") if name in rejects.schema.names)
        return matching_texts(rejects, columns, texts.mask, texts.words)

    return find


class _Texts:
    """Which rejected events match."""

    def __init__(self, matching: Matching) -> None:
        self.words = matching.words
        self._matching = matching
        self._fields = Fields.of(matching.snapshot.settings)
        self._schema = matching.snapshot.schema
        self._word = word_pattern(matching.words)

    def mask(self, rejects: pa.RecordBatch) -> pa.BooleanArray:
        """Return for each reject whether it is to be erased."""
        raws = [raw or b"" for raw in rejects[RAW].to_pylist()]
        values = decode_all(raws)
        events = [(at, RawEvent(at, value)) for at, value in enumerate(values) if isinstance(value, dict)]
        held: list[bool | None] = [None] * len(raws)
        for (at, _), holds in zip(events, self._hold([event for _, event in events]), strict=True):
            held[at] = holds
        names = [name for name in rejects.schema.names if name != RAW]
        told = zip(*(rejects[name].to_pylist() for name in names), strict=True) if names else ((),) * len(raws)
        found = [
            self._contains(raw, *texts) if holds is None else holds
            for holds, raw, texts in zip(held, raws, told, strict=True)
        ]
        return pa.array(found, pa.bool_())

    def _hold(self, events: Sequence[RawEvent]) -> list[bool | None]:
        if not events:
            return []
        rows = as_far_as_possible(events, self._schema, self._fields).combine_chunks()
        held: list[bool | None] = []
        for batch in rows.to_batches():
            held += self._matching.lenient(batch).to_pylist()
        return held

    def _contains(self, raw: bytes, *texts: str | None) -> bool:
        every = (raw.decode(errors="replace"), *(text for text in texts if text is not None))
        return self._word is not None and any(self._word.search(text) for text in every)
