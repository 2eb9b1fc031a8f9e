"""The OpenTelemetry SDK's exporter of logs, as applications use it."""

from __future__ import annotations

import logging

import pytest
from opentelemetry.exporter.otlp.proto.http import Compression
from opentelemetry.exporter.otlp.proto.http._log_exporter import OTLPLogExporter
from opentelemetry.sdk._logs import LoggerProvider, LoggingHandler
from opentelemetry.sdk._logs.export import BatchLogRecordProcessor
from opentelemetry.sdk.resources import Resource

import alluvia
from tests.clients.conftest import LosesTheFirst, Served, behind_a_gateway

pytestmark = pytest.mark.filterwarnings("ignore:`LoggingHandler`:DeprecationWarning")


@pytest.mark.parametrize("compression", [Compression.NoCompression, Compression.Gzip, Compression.Deflate])
def test_lines_of_a_logger(served: Served, compression: Compression) -> None:
    shop = f"shop-{served.way}-{compression.value}"
    provider = LoggerProvider(Resource({"service.name": shop, "replicas": 2}))
    exporter = OTLPLogExporter(f"{served.url}/v1/logs", compression=compression)
    provider.add_log_record_processor(BatchLogRecordProcessor(exporter))
    logger = logging.getLogger("tests.shop")
    logger.propagate = False
    logger.addHandler(sink := LoggingHandler(logging.INFO, provider))
    try:
        for _ in range(2):
            logger.warning("out of %s", "stock", extra={"sku": "A-1", "left": 0, "tags": ["x", "y"]})
    finally:
        logger.removeHandler(sink)
        provider.shutdown()
    first, second = [row for row in served.rows("logs") if row["source"] == shop]
    assert first["event_id"] != second["event_id"]
    said = first["properties"]
    assert (said["body"], said["severity_text"], said["severity_number"]) == ("out of stock", "WARN", 13)
    assert said["scope"] == {"name": "tests.shop"}
    assert said["resource"]["attributes"]["replicas"] == 2
    attributes = said["attributes"]
    assert (attributes["sku"], attributes["left"], attributes["tags"]) == ("A-1", 0, ["x", "y"])
    assert int(first["ts"].timestamp() * 1_000_000) == said["time_unix_nano"] // 1000


def test_a_retry_after_a_lost_answer_is_stored_once(lake: alluvia.Lake) -> None:
    with behind_a_gateway(lossy := LosesTheFirst()) as port:
        provider = LoggerProvider(Resource({"service.name": "retries"}))
        exporter = OTLPLogExporter(f"http://127.0.0.1:{port}/v1/logs")
        provider.add_log_record_processor(BatchLogRecordProcessor(exporter))
        for _ in range(2):
            provider.get_logger("x").emit(timestamp=1_577_836_800_000_000_000, body="same")
        assert provider.force_flush()
        provider.shutdown()
    assert lossy.bodies == [lossy.bodies[0]] * 2
    assert [row["source"] for row in lake.table("logs").scan().read_all().to_pylist()].count("retries") == 2
