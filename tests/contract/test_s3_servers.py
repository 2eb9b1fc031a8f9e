"""The S3 servers that other tests rest on: their conditional writes are exact, however many write at once."""

from __future__ import annotations

import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from http.client import HTTPConnection

import pytest
from botocore.exceptions import ClientError

from tests.s3server import S3Endpoint

RACES = 200
THREADS = 8


@pytest.fixture(params=["s3_server", "s3proxy"])
def server(request: pytest.FixtureRequest) -> S3Endpoint:
    found: S3Endpoint = request.getfixturevalue(request.param)
    return found


def put(server: S3Endpoint, bucket: str, key: str, body: bytes) -> int:
    """Put to `If-None-Match: *`, and return the status; a 409 is sent again, as S3 asks for."""
    while True:
        try:
            server.client.put_object(Bucket=bucket, Key=key, Body=body, IfNoneMatch="*")
        except ClientError as error:
            status = int(error.response["ResponseMetadata"]["HTTPStatusCode"])
            if status != 409:
                return status
        else:
            return 200


@pytest.mark.slow
def test_of_many_racing_writers_one_creates_the_object_and_the_others_learn_it(server: S3Endpoint) -> None:
    bucket = server.new_bucket()
    barrier = threading.Barrier(THREADS)
    # Presigned, on connections of our own: boto3 would take longer over a request than the servers do.
    host = server.endpoint_url.removeprefix("http://")
    connections = [HTTPConnection(host, timeout=60) for _ in range(THREADS)]

    def attempt(number: int, url: str) -> int:
        barrier.wait()
        while (status := sent(connections[number], "PUT", url, bytes([number]) * 2000)[0]) == 409:
            pass
        return status

    with ThreadPoolExecutor(THREADS) as pool:
        for race in range(RACES):
            put_url, get_url = (
                server.client.generate_presigned_url(name, {"Bucket": bucket, "Key": f"race/{race}"})
                for name in ("put_object", "get_object")
            )
            statuses = list(pool.map(attempt, range(THREADS), [put_url] * THREADS))
            assert Counter(statuses) == {200: 1, 412: THREADS - 1}
            assert sent(connections[0], "GET", get_url) == (200, bytes([statuses.index(200)]) * 2000)
    for connection in connections:
        connection.close()


def sent(connection: HTTPConnection, method: str, url: str, body: bytes | None = None) -> tuple[int, bytes]:
    """Send a request, a PUT to `If-None-Match: *`, and return the status and the body of the answer."""
    connection.request(method, url, body, {"If-None-Match": "*"} if method == "PUT" else {})
    answer = connection.getresponse()
    return answer.status, answer.read()


@pytest.mark.slow
def test_a_key_is_taken_until_its_object_is_deleted(server: S3Endpoint) -> None:
    bucket = server.new_bucket()
    server.client.put_object(Bucket=bucket, Key="a/b", Body=b"plain")
    assert put(server, bucket, "a/b", b"second") == 412
    assert server.client.get_object(Bucket=bucket, Key="a/b")["Body"].read() == b"plain"
    server.client.put_object(Bucket=bucket, Key="a/b", Body=b"replaced")
    assert put(server, bucket, "a/b", b"third") == 412
    assert server.client.get_object(Bucket=bucket, Key="a/b")["Body"].read() == b"replaced"
    answer = server.client.delete_objects(Bucket=bucket, Delete={"Objects": [{"Key": "a/b"}, {"Key": "a/absent"}]})
    assert not answer.get("Errors")
    assert put(server, bucket, "a/b", b"fourth") == 200
    assert server.client.get_object(Bucket=bucket, Key="a/b")["Body"].read() == b"fourth"
