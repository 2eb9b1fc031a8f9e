"""The messages that we describe, read and written by Arrow's own library."""

from __future__ import annotations

import contextlib
import random

import pyarrow as pa
import pyarrow.flight as arrow_flight  # type: ignore[import-untyped]
import pytest

from alluvia.errors import Invalid
from alluvia.flight.messages import new, packed, read, received, schema_bytes, sent, unpacked
from alluvia.flight.statuses import TEXT_BYTES_MAX, fitting

SCHEMA = pa.schema([("n", pa.int64()), pa.field("kind", pa.dictionary(pa.int8(), pa.string()))])


def test_a_descriptor() -> None:
    theirs = arrow_flight.FlightDescriptor.for_command(b"abc").serialize()
    assert read("FlightDescriptor", theirs).cmd == b"abc"
    assert new("FlightDescriptor", type=2, cmd=b"abc").SerializeToString() == theirs


def test_an_info() -> None:
    endpoint = new("FlightEndpoint", ticket=new("Ticket", ticket=b"t"))
    asked = new("FlightDescriptor", type=2, cmd=b"abc")
    fields = {"schema": schema_bytes(SCHEMA), "flight_descriptor": asked, "endpoint": [endpoint], "total_records": -1}
    info = new("FlightInfo", **fields)
    found = arrow_flight.FlightInfo.deserialize(info.SerializeToString())
    assert (found.schema, found.endpoints[0].ticket.ticket, found.total_records) == (SCHEMA, b"t", -1)


def test_a_command_is_what_it_was() -> None:
    name, found = unpacked(packed("CommandGetTables", table_name_filter_pattern="", table_types=["VIEW"]))
    assert (name, list(found.table_types)) == ("CommandGetTables", ["VIEW"])
    assert found.HasField("table_name_filter_pattern")
    assert not found.HasField("catalog")


@pytest.mark.parametrize("data", [b"", b"\xff", b"\x0a\x01a", packed("CommandStatementQuery")[:-2] + b"\x80\x80"])
def test_what_is_no_command(data: bytes) -> None:
    with pytest.raises(Invalid, match="Flight SQL"):
        unpacked(data)


def test_rows_come_as_they_went() -> None:
    kinds = pa.array(["a", None, "b"]).dictionary_encode().cast(SCHEMA.field("kind").type)
    batches = [pa.record_batch([pa.array([1, None, 3], pa.int64()), kinds], schema=SCHEMA)] * 2
    found = received(sent(SCHEMA, batches), 1 << 20)
    assert found is not None
    assert found.to_pylist() == pa.Table.from_batches(batches).to_pylist()
    assert received([new("FlightData")], 1 << 20) is None


def test_messages_stay_below_what_clients_take() -> None:
    rows = pa.record_batch({"text": ["x" * 1000] * 10_000})
    parts = list(sent(rows.schema, [rows]))
    assert max(part.ByteSize() for part in parts) < 4 << 20
    found = received(parts, 100 << 20)
    assert found is not None
    assert found.num_rows == 10_000


def test_values_of_too_many_bytes() -> None:
    rows = pa.record_batch({"text": ["x" * 1000]})
    with pytest.raises(Invalid, match="more than 100 bytes"):
        received(sent(rows.schema, [rows]), 100)


@pytest.mark.parametrize("character", ["a", " ", "é", "😀", "\ud800", "\n"])
def test_texts_of_errors_fit_into_headers(character: str) -> None:
    assert fitting(character * 10) == character * 10
    assert len(fitting(character * 10_000)) <= TEXT_BYTES_MAX + 1


@pytest.mark.parametrize("codec", ["lz4", "zstd"])
def test_values_are_not_unpacked(codec: str) -> None:
    """A kilobyte that is a gigabyte once it is unpacked is refused before it is."""
    kinds = pa.array(["a" * 1000]).dictionary_encode()
    for column in (pa.array([0] * 100_000), kinds):
        rows = pa.record_batch({"n": column})
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, rows.schema, options=pa.ipc.IpcWriteOptions(compression=codec)) as writer:
            writer.write_batch(rows)
        parts = [
            new("FlightData", data_header=message.metadata.to_pybytes(), data_body=bytes(message.body or b""))
            for message in pa.ipc.MessageReader.open_stream(sink.getvalue())
        ]
        with pytest.raises(Invalid, match="compressed"):
            received(parts, 1 << 20)


def test_headers_at_random() -> None:
    source = random.Random(3)
    rows = pa.record_batch({"n": [1, 2, 3]})
    whole = list(sent(rows.schema, [rows]))
    for _ in range(2000):
        header = bytearray(whole[1].data_header)
        header[source.randrange(len(header))] = source.randrange(256)
        with contextlib.suppress(Invalid):
            received([whole[0], new("FlightData", data_header=bytes(header), data_body=whole[1].data_body)], 1 << 20)
