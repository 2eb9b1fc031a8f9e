"""A store that reads beyond its lake, on S3."""

from __future__ import annotations

from alluvia.clock import ManualClock
from alluvia.store import WideStore, open_wide_store
from tests.s3server import S3Server


def test_a_wide_store_reads_its_whole_bucket(s3_server: S3Server) -> None:
    bucket = s3_server.new_bucket()
    options = s3_server.options
    wide = open_wide_store(f"s3://{bucket}/lake", ManualClock(), **options)
    assert isinstance(wide, WideStore)
    wide.outer.put("other/x", b"abc")
    key = wide.locate(f"s3a://{bucket}/other/x")
    assert key == f"s3://{bucket}/other/x"
    assert wide.get(key) == b"abc"
    assert wide.url(key) == key
    assert wide.locate("s3://elsewhere/x") is None
