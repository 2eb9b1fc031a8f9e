"""Older versions of objects that an S3 bucket still keeps, which obstore does not list: by boto3, loaded when asked."""

from __future__ import annotations

from collections.abc import Iterator

from alluvia.errors import StoreRefused, Unavailable
from alluvia.store.base import OldVersion
from alluvia.store.s3.credentials import Keys

TRIES = 5
FORBIDDEN = (401, 403)


def old_versions(
    bucket: str, prefix: str, keys: Keys | None, *, region: str, endpoint_url: str | None
) -> Iterator[OldVersion]:
    """Yield what is not the newest version of an object below a prefix of a bucket: one request per 1,000 versions.

    Raises `StoreRefused` where the policy does not allow it, and `Unavailable`.
    """
    import boto3
    from botocore.client import Config
    from botocore.exceptions import BotoCoreError, ClientError

    by_path = endpoint_url or "." in bucket
    client = boto3.client(
        "s3",
        region_name=region,
        endpoint_url=endpoint_url,
        aws_access_key_id=None if keys is None else keys.access_key_id,
        aws_secret_access_key=None if keys is None else keys.secret_access_key,
        aws_session_token=None if keys is None else keys.session_token,
        config=Config(
            s3={"addressing_style": "path" if by_path else "auto"},
            retries={"mode": "standard", "total_max_attempts": TRIES},
            connect_timeout=5,
            read_timeout=30,
        ),
    )
    try:
        for page in client.get_paginator("list_object_versions").paginate(Bucket=bucket, Prefix=prefix):
            for each in page.get("Versions", ()):
                if not each["IsLatest"]:
                    modified_ms = int(each["LastModified"].timestamp() * 1000)
                    yield OldVersion(each["Key"], each["VersionId"], each["Size"], modified_ms)
    except ClientError as error:
        code = error.response.get("Error", {}).get("Code", "unknown")
        if error.response.get("ResponseMetadata", {}).get("HTTPStatusCode") in FORBIDDEN:
            msg = f"S3 refuses to list object versions of {bucket} ({code}): allow s3:ListBucketVersions"
            raise StoreRefused(msg) from error
        raise Unavailable(f"S3 did not list the object versions of {bucket} ({code}): try again") from error
    except BotoCoreError as error:
        msg = f"S3 cannot be reached for the object versions of {bucket} ({type(error).__name__}): try again"
        raise Unavailable(msg) from error
