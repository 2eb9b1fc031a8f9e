"""Erase rows of a table together with its rejected events, which are kept as they were sent.

A reject matches if the condition holds for the row that its event would have become, as far as its fields can be
converted. Where that does not tell, because the text is not an event or lacks a field, it matches if it contains one of
the texts and numbers of the condition. That decides for equality and IN alone: a text that is not an event cannot be
judged by another condition, and is named.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import pyarrow as pa

from alluvia.commit.handle import TableHandle
from alluvia.delta.snapshot import Snapshot
from alluvia.events.ingest.event_rows import as_far_as_possible
from alluvia.events.ingest.event_tables import find_rejects
from alluvia.events.ingest.rejects import RAW
from alluvia.events.ingest.values import Fields, RawEvent
from alluvia.json_values.jsontext import decode_all, encode
from alluvia.operations.catalog.catalog import WritableCatalog
from alluvia.operations.erasure.erase import count_rows, erase, prove
from alluvia.operations.erasure.erase_judging import Judge, Judged
from alluvia.operations.erasure.erase_keepers import KeptFacts, without_rows
from alluvia.operations.erasure.erase_lake import search_lake
from alluvia.operations.erasure.erase_matching import (
    Find,
    Matching,
    matching_rows,
    matching_texts,
    name_words_of,
    names_values,
    word_pattern,
    words_of,
)
from alluvia.operations.erasure.erase_places import places, sources_of
from alluvia.operations.erasure.erase_report import ENDED_TEXTS, EraseReport
from alluvia.operations.erasure.erase_texts import delete_ended
from alluvia.operations.erasure.erase_work import EraseWork
from alluvia.operations.results.jobs import delete_jobs
from alluvia.operations.results.results import delete_results
from alluvia.operations.results.upload_parts import delete_uploads


def erase_rows(
    catalog: WritableCatalog,
    handle: TableHandle,
    where: str,
    *,
    proof: bool = False,
    before_removal: Callable[[], None] = lambda: None,
    release_tags: bool = False,
    anywhere: bool = False,
    work: EraseWork | None = None,
) -> EraseReport:
    """Erase the rows of a table, and those of its rejects, for which an SQL condition holds; then search for them.

    Without `proof` nothing is searched. For `before_removal` see `erase`, for `anywhere` see `matching_rows`. Raises
    `Invalid` as they do, before it writes anything. `work` is that on the table; this process does that on rejects.
    """
    find = matching_rows(where, anywhere=anywhere)
    matching = find(handle.newest())
    rejects = find_rejects(catalog, handle)
    facts = KeptFacts()
    # Nothing is changed where a clone holds a rejected event.
    without_rows(handle, matching, release_tags=release_tags, facts=facts)
    if rejects is not None:
        without_rows(rejects, _rejects_finder(handle, where)(rejects.newest()), release_tags=release_tags)
    delete_uploads(handle.store, handle.name)  # before, so that one that is being completed commits nothing after
    skips = rejects is not None
    done = erase(
        handle,
        find,
        skips_rejects=skips,
        before_removal=before_removal,
        release_tags=release_tags,
        facts=facts,
        work=work,
    )
    _delete_kept(handle)
    if rejects is not None:
        finder = _rejects_finder(handle, where)
        done = replace(done, rejects=erase(rejects, finder, release_tags=release_tags))
        _delete_kept(handle)  # with rejects, which were there until now
    in_lake = handle.root == f"{handle.name}/"
    texts = delete_ended(handle.store, handle.clock, words_of(where)) if in_lake else 0
    removed = {**done.removed, **({ENDED_TEXTS: texts} if texts else {})}
    done = replace(done, removed=removed, unknown=sorted(find(handle.newest()).unknown))
    if not proof:
        return done
    proved = prove_erased(catalog, handle, where, anywhere=anywhere, work=work)
    return _with_proof(done, proved)


def prove_erased(
    catalog: WritableCatalog,
    handle: TableHandle,
    where: str,
    *,
    anywhere: bool = False,
    dropped: bool = False,
    counts: bool = False,
    work: EraseWork | None = None,
) -> EraseReport:
    """Search a table, its rejects and what its lake keeps for rows for which an SQL condition holds. Writes nothing.

    With `dropped`, also a table that was dropped. With `counts`, `rows` are those that an erasure would delete.
    """
    rejects = None if dropped else find_rejects(catalog, handle)
    find = matching_rows(where, anywhere=anywhere)
    proof = prove(handle, find, skips_rejects=rejects is not None, dropped=dropped, work=work)
    if handle.root == f"{handle.name}/":  # opened in its lake
        searched, traces = search_lake(handle.store, handle.name, words_of(where), name_words_of(where))
        proof = replace(proof, searched=[*proof.searched, *searched], found=[*proof.found, *traces])
    unknown = sorted(find(handle.newest(dropped=dropped)).unknown)
    report = EraseReport(proof.version, count_rows(handle, find, work) if counts else 0, proof=proof, unknown=unknown)
    if rejects is None:
        return report
    find = _rejects_finder(handle, where)
    proof = prove(rejects, find)
    rows = count_rows(rejects, find) if counts else 0
    return replace(report, rejects=EraseReport(proof.version, rows, proof=proof))


def _with_proof(done: EraseReport, proved: EraseReport) -> EraseReport:
    rejects = proved.rejects
    if done.rejects is not None and rejects is not None:
        rejects = replace(done.rejects, proof=rejects.proof)
    return replace(done, proof=proved.proof, rejects=rejects or done.rejects)


def _delete_kept(handle: TableHandle) -> None:
    """Delete what the lake keeps of queries and uploads, which may have values of rows.

    Results of any query, since views and rollups show rows too.
    """
    delete_results(handle.store)
    delete_uploads(handle.store, handle.name)
    delete_jobs(handle.store)


def _rejects_finder(handle: TableHandle, where: str) -> Find:
    snapshot = handle.newest()
    texts = _Texts(snapshot, where)

    def find(rejects: Snapshot) -> Matching:
        columns = tuple(name for name in (RAW, "reason", "event_id", "given") if name in rejects.schema.names)
        return matching_texts(rejects, columns, texts.judge, where)

    return find


_UNTOLD = "some of its rejects are not JSON objects, and the condition gives no values to look for, with = or IN"


class _Texts:
    """Which rejected events match."""

    def __init__(self, snapshot: Snapshot, where: str) -> None:
        self.words = words_of(where)
        self._judge = Judge(where, snapshot, places(where, snapshot))
        self._names_values = names_values(where)
        self._fields = Fields.of(snapshot)
        self._schema = snapshot.schema
        self._word = word_pattern(self.words)

    def judge(self, rejects: pa.RecordBatch, strict: bool) -> Judged:  # noqa: ARG002 - as any `Judging`
        """Return for each reject whether it is to be erased."""
        raws = [raw or b"" for raw in rejects[RAW].to_pylist()]
        values = decode_all(raws)
        events = [(at, RawEvent(at, value)) for at, value in enumerate(values) if isinstance(value, dict)]
        held: list[bool | None] = [None] * len(raws)
        for (at, _), holds in zip(events, self._hold([event for _, event in events]), strict=True):
            held[at] = holds
        names = [name for name in rejects.schema.names if name != RAW]
        told = zip(*(rejects[name].to_pylist() for name in names), strict=True) if names else ((),) * len(raws)
        matching = [
            self._contains(raw, *texts) if holds is None else holds
            for holds, raw, texts in zip(held, raws, told, strict=True)
        ]
        untold = not self._names_values and any(
            not isinstance(value, dict) and not has for value, has in zip(values, matching, strict=True)
        )
        return Judged(pa.array(matching, pa.bool_()), frozenset({_UNTOLD} if untold else ()))

    def _hold(self, events: Sequence[RawEvent]) -> list[bool | None]:
        """Return of events whether they match, as rows or as they were sent; None for one that lacks a field."""
        if not events:
            return []
        rows = as_far_as_possible(events, self._schema, self._fields).combine_chunks()
        held: list[bool | None] = []
        for batch in rows.to_batches():
            some = events[len(held) : len(held) + len(batch)]
            sent = [_as_sent(event.value) for event in some]
            texts = [pa.array(column, pa.string()) for column in zip(*sent, strict=True)]
            judged = self._judge.judged(batch, texts).mask.to_pylist()
            tells = [self._tells(batch, at, sent[at]) for at in range(len(batch))]
            held += [True if holds else False if told else None for holds, told in zip(judged, tells, strict=True)]
        return held

    def _tells(self, rows: pa.RecordBatch, at: int, sent: Sequence[str]) -> bool:
        """Whether an event has a value of each field of the condition."""
        fields = self._judge.places.fields
        known = {field.name for field in fields if field.column is not None and rows[field.column][at].is_valid}
        for text in sent:
            sources = sources_of(text, fields)
            known.update(() if sources is None else sources.values)
        return known >= {field.name for field in fields}

    def _contains(self, raw: bytes, *texts: str | None) -> bool:
        every = (raw.decode(errors="replace"), *(text for text in texts if text is not None))
        return self._word is not None and any(self._word.search(text) for text in every)


def _as_sent(event: Mapping[str, object]) -> tuple[str, str]:
    """Return an event's own fields and those of the object that it sends as `properties`, as JSON texts."""
    sent = event.get("properties")
    if not isinstance(sent, dict):
        return encode(event).decode(), "{}"
    return encode({name: value for name, value in event.items() if name != "properties"}).decode(), encode(
        sent
    ).decode()
