from __future__ import annotations

import pytest

from alluvia.delta.log.actions import Metadata, Protocol
from alluvia.delta.properties import check_properties, names_text, read_properties
from alluvia.delta.protocols import check_readable, check_writable, has_domains, new_protocol
from alluvia.errors import Corrupt, Invalid, Unsupported

NTZ = '{"type":"struct","fields":[{"name":"x","type":"timestamp_ntz","nullable":true,"metadata":{}}]}'
PLAIN = '{"type":"struct","fields":[{"name":"x","type":"long","nullable":true,"metadata":{}}]}'


def test_defaults() -> None:
    found = read_properties({})
    assert (found.partition_by, found.sort_by, found.writers, found.codec) == ((), (), "alluvia", "zstd")
    assert (found.dedup_window_ms, found.log_retention_ms, found.file_retention_ms) == (
        3_600_000,
        30 * 86_400_000,
        7 * 86_400_000,
    )
    assert (found.target_file_size, found.row_group_rows, found.checkpoint_interval) == (128 << 20, 122_880, 10)
    assert (found.in_commit_timestamps, found.append_only, found.indexed_columns) == (False, False, 32)


@pytest.mark.parametrize(
    ("text", "ms"),
    [
        ("1 hour", 3_600_000),
        ("interval 7 days", 7 * 86_400_000),
        ("INTERVAL 1 WEEK", 604_800_000),
        ("  2   weeks ", 2 * 604_800_000),
        ("90 minutes", 5_400_000),
        ("0 seconds", 0),
        ("250 milliseconds", 250),
    ],
)
def test_durations(text: str, ms: int) -> None:
    assert read_properties({"alluvia.dedup_window": text}).dedup_window_ms == ms
    assert read_properties({"delta.logRetentionDuration": text}).log_retention_ms == ms


@pytest.mark.parametrize(
    ("text", "size"), [("1", 1), ("10 b", 10), ("3KB", 3072), ("128 MB", 128 << 20), (" 2 gb ", 2 << 30)]
)
def test_sizes(text: str, size: int) -> None:
    assert read_properties({"alluvia.target_file_size": text}).target_file_size == size


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("alluvia.dedup_window", "an hour"),
        ("alluvia.dedup_window", "1.5 hours"),
        ("alluvia.dedup_window", "1 month"),
        ("alluvia.dedup_window", "-1 hour"),
        ("alluvia.dedup_window", ""),
        ("alluvia.dedup_window", "3600"),
        ("delta.logRetentionDuration", "forever"),
        ("delta.deletedFileRetentionDuration", "week"),
        ("alluvia.target_file_size", "0"),
        ("alluvia.target_file_size", "big"),
        ("alluvia.target_file_size", "1 TB"),
        ("alluvia.row_group_rows", "0"),
        ("alluvia.row_group_rows", "-5"),
        ("alluvia.codec", "brotlix"),
        ("alluvia.writers", "some"),
        ("alluvia.partition_by", "day(ts)"),
        ("alluvia.partition_by", '{"a":1}'),
        ("alluvia.sort_by", "[1]"),
        ("delta.checkpointInterval", "ten"),
        ("delta.checkpointInterval", "0"),
        ("delta.dataSkippingNumIndexedCols", "-2"),
        ("delta.dataSkippingNumIndexedCols", "all"),
        ("delta.appendOnly", "yes"),
        ("alluvia.id_field", ""),
        ("alluvia.id_field", "data..id"),
        ("alluvia.time_field", "data. at"),
        ("alluvia.time_field", ".at"),
    ],
)
def test_a_broken_value_names_its_property(name: str, value: str) -> None:
    with pytest.raises(Invalid, match=f"property {name}: "):
        check_properties({name: value})
    with pytest.raises(Corrupt, match=f"property {name}: "):
        read_properties({name: value})


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("alluvia.dedupwindow", r"did you mean alluvia\.dedup_window\?"),
        ("alluvia.appendonly", r"did you mean delta\.appendOnly\?"),
        ("delta.constraints.", "the known ones are alluvia.bloom_filters"),
        ("delta.someFutureSetting", "the known ones are alluvia.bloom_filters"),
    ],
)
def test_an_unknown_property_of_ours_or_deltas_is_refused(name: str, told: str) -> None:
    with pytest.raises(Invalid, match=f"property {name} is unknown: {told}"):
        check_properties({name: "true"})


def test_other_peoples_properties_are_kept() -> None:
    given = {"owner": "me", "spark.x": "y", "delta.appendOnly": "TRUE", "delta.dataSkippingNumIndexedCols": "-1"}
    assert check_properties(given) == given
    assert read_properties(given).append_only
    assert read_properties(given).indexed_columns > 1_000_000
    with pytest.raises(Invalid, match="property n: expected text"):
        check_properties({"n": 5})


def test_paths_of_fields() -> None:
    found = read_properties({"alluvia.id_field": "data.order.id", "alluvia.time_field": "created at"})
    assert (found.id_field, found.time_field) == (("data", "order", "id"), ("created at",))
    assert (read_properties({}).id_field, read_properties({}).time_field) == ((), ())


def test_names_are_a_json_list() -> None:
    names = ["a", 'q"uote', "day(ts)"]
    assert read_properties({"alluvia.sort_by": names_text(names)}).sort_by == tuple(names)


def test_a_new_table_is_guarded_unless_any_writer_may() -> None:
    guarded = new_protocol("alluvia", PLAIN)
    assert (guarded.min_reader_version, guarded.min_writer_version, guarded.reader_features) == (1, 7, None)
    assert guarded.writer_features == ("appendOnly", "invariants", "inCommitTimestamp", "domainMetadata", "alluvia")
    assert new_protocol("any", PLAIN) == Protocol(1, 2)
    assert has_domains(guarded)
    assert not has_domains(Protocol(1, 2))


def test_a_timestamp_without_a_zone_is_a_feature() -> None:
    guarded, open_ = new_protocol("alluvia", NTZ), new_protocol("any", NTZ)
    for protocol in (guarded, open_):
        assert (protocol.min_reader_version, protocol.min_writer_version) == (3, 7)
        assert protocol.reader_features == ("timestampNtz",)
        assert "timestampNtz" in (protocol.writer_features or ())
    assert "alluvia" in (guarded.writer_features or ())
    assert "alluvia" not in (open_.writer_features or ())


def metadata(schema: str = PLAIN, **configuration: str) -> Metadata:
    return Metadata("id", schema, (), {name.replace("_", "."): value for name, value in configuration.items()})


@pytest.mark.parametrize(
    ("protocol", "named"),
    [
        (Protocol(4, 7), "reader version 4"),
        (Protocol(3, 7, ("someFeature",), ()), "someFeature"),
        (Protocol(3, 7, ("timestampNtz", "b-feature", "a-feature"), ()), "a-feature, b-feature"),
    ],
)
def test_a_feature_that_readers_need_is_refused_by_name(protocol: Protocol, named: str) -> None:
    for check in (check_readable, check_writable):
        with pytest.raises(Unsupported, match=named):
            check(protocol, metadata())


@pytest.mark.parametrize(
    ("protocol", "named"),
    [
        (Protocol(1, 8), "writer version 8"),
        (Protocol(1, 7, None, ("someFeature",)), "someFeature"),
        (Protocol(1, 7, None, ("alluvia", "b-feature", "a-feature")), "a-feature, b-feature"),
    ],
)
def test_a_feature_that_writers_need_is_refused_by_name(protocol: Protocol, named: str) -> None:
    check_readable(protocol, metadata())
    with pytest.raises(Unsupported, match=named):
        check_writable(protocol, metadata())


def test_what_this_library_reads_and_writes() -> None:
    for protocol in (Protocol(1, 1), Protocol(1, 2), Protocol(2, 2), Protocol(3, 7, (), ()), new_protocol("any", NTZ)):
        check_writable(protocol, metadata())


def test_other_formats_and_invariants_are_refused() -> None:
    with pytest.raises(Unsupported, match="orc"):
        check_readable(Protocol(1, 2), Metadata("id", PLAIN, format_provider="orc"))
    invariant = PLAIN.replace('"metadata":{}', '"metadata":{"delta.invariants":"{}"}')
    check_readable(Protocol(1, 2), metadata(invariant))
    with pytest.raises(Unsupported, match="column x has an invariant"):
        check_writable(Protocol(1, 2), metadata(invariant))
    nested = invariant.replace('"type":"struct","fields":', '"type":"struct","fields":[{"name":"s","nullable":true,'
                               '"metadata":{},"type":{"type":"struct","fields":', 1) + "}]}"  # fmt: skip
    with pytest.raises(Unsupported, match=r"column s\.x has an invariant"):
        check_writable(Protocol(1, 2), metadata(nested))
