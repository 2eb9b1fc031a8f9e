from __future__ import annotations

from typing import Any

import pytest

from tests.infra.policies import Statement, applies, resources_of, the_id

Template = dict[str, Any]


def bucket_statements(template: Template) -> list[Statement]:
    bucket = the_id(template, "AWS::S3::Bucket", "StorageLake")
    policies = resources_of(template, "AWS::S3::BucketPolicy").values()
    (policy,) = (policy for policy in policies if policy["Bucket"] == {"Ref": bucket})
    return list(policy["PolicyDocument"]["Statement"])


def denied(template: Template, action: str, key: str, **request: str) -> bool:
    keys = {"secure": "aws:SecureTransport", "tls": "s3:TlsVersion", "none_match": "s3:if-none-match"}
    keys |= {"match": "s3:if-match"}
    named = {"aws:SecureTransport": "true", "s3:TlsVersion": "1.3"}
    named |= {keys[name]: value for name, value in request.items()}
    resource = f"{{{the_id(template, 'AWS::S3::Bucket', 'StorageLake')}.Arn}}/{key}"
    found = [statement for statement in bucket_statements(template) if statement["Effect"] == "Deny"]
    assert all(statement["Principal"] == {"AWS": "*"} for statement in found)
    return any(applies(statement, action, resource, named) for statement in found)


@pytest.mark.parametrize("kind", ["StorageLake", "StorageAccessLogs"])
def test_buckets_are_private_encrypted_and_outlive_the_stack(template: Template, kind: str) -> None:
    resource = template["Resources"][the_id(template, "AWS::S3::Bucket", kind)]
    assert resource["DeletionPolicy"] == "Retain"
    assert resource["UpdateReplacePolicy"] == "Retain"
    properties = resource["Properties"]
    assert properties["PublicAccessBlockConfiguration"] == {
        "BlockPublicAcls": True,
        "BlockPublicPolicy": True,
        "IgnorePublicAcls": True,
        "RestrictPublicBuckets": True,
    }
    assert properties["OwnershipControls"] == {"Rules": [{"ObjectOwnership": "BucketOwnerEnforced"}]}
    assert properties["BucketEncryption"]["ServerSideEncryptionConfiguration"] == [
        {"ServerSideEncryptionByDefault": {"SSEAlgorithm": "AES256"}}
    ]


def test_unfinished_uploads_and_deleted_versions_expire_and_nothing_else(template: Template) -> None:
    properties = template["Resources"][the_id(template, "AWS::S3::Bucket", "StorageLake")]["Properties"]
    assert properties["VersioningConfiguration"] == {"Status": "Enabled"}
    assert sorted(properties["LifecycleConfiguration"]["Rules"], key=lambda rule: str(rule["Id"])) == [
        {
            "Id": "drop-unfinished-uploads",
            "Status": "Enabled",
            "AbortIncompleteMultipartUpload": {"DaysAfterInitiation": 2},
        },
        {
            "Id": "forget-deleted-objects",
            "Status": "Enabled",
            "NoncurrentVersionExpiration": {"NoncurrentDays": 7},
            "ExpiredObjectDeleteMarker": True,
        },
    ]


def test_access_to_the_lake_is_logged(template: Template) -> None:
    properties = template["Resources"][the_id(template, "AWS::S3::Bucket", "StorageLake")]["Properties"]
    logging = properties["LoggingConfiguration"]
    assert logging["DestinationBucketName"] == {"Ref": the_id(template, "AWS::S3::Bucket", "StorageAccessLogs")}
    assert logging["LogFilePrefix"]


@pytest.mark.parametrize("action", ["s3:GetObject", "s3:PutObject", "s3:DeleteObject"])
def test_plain_text_and_old_tls_are_refused(template: Template, action: str) -> None:
    assert denied(template, action, "lake/events/part-0.parquet", secure="false")
    assert denied(template, action, "lake/events/part-0.parquet", tls="1.1")
    assert not denied(template, action, "lake/events/part-0.parquet")


@pytest.mark.parametrize(
    "key",
    [
        "lake/events/_delta_log/00000000000000000000.json",
        "lake/events/_rejects/_delta_log/00000000000000000007.json",
        "elsewhere/_delta_log/00000000000000000000.json",
    ],
)
def test_a_commit_is_put_under_a_condition_or_not_at_all(template: Template, key: str) -> None:
    assert denied(template, "s3:PutObject", key)
    assert not denied(template, "s3:PutObject", key, none_match="*")
    assert not denied(template, "s3:PutObject", key, match='"etag"')
    assert not denied(template, "s3:GetObject", key)


@pytest.mark.parametrize(
    "key",
    [
        "lake/events/_delta_log/_last_checkpoint",
        "lake/events/_delta_log/00000000000000000010.checkpoint.parquet",
        "lake/events/ts_day=2026-01-01/part-0.parquet",
        "lake/events/part-0.json",
    ],
)
def test_what_is_no_commit_needs_no_condition(template: Template, key: str) -> None:
    assert not denied(template, "s3:PutObject", key)


def test_the_policy_of_the_bucket_allows_nobody_anything(template: Template) -> None:
    assert {statement["Effect"] for statement in bucket_statements(template)} == {"Deny"}
