"""The lake's bucket, who may do what in it, and the bucket of its access logs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from aws_cdk import Aws, Duration, RemovalPolicy
from aws_cdk import aws_iam as iam
from aws_cdk import aws_s3 as s3
from aws_cdk import aws_sqs as sqs
from constructs import Construct

from infra.nag import accept, accept_wildcard

LAKE_PREFIX = "lake/"
# Rejected events are in a table below their table's folder.
REJECTS = f"{LAKE_PREFIX}*/_rejects/"
# Results of queries, which are kept for the next who asks.
RESULTS = f"{LAKE_PREFIX}_alluvia/results/"
PUBLISHED = f"{LAKE_PREFIX}_alluvia/queries/"
# What says who may do what: public keys of tokens and what was revoked, senders of webhooks. No function writes it.
ACCESS = (f"{LAKE_PREFIX}_alluvia/tokens/*", f"{LAKE_PREFIX}_alluvia/sources.toml")
WRITES = ("s3:PutObject", "s3:DeleteObject")
# What a function may write again without a look: records of how far something is, leases, results. No table's rows.
REWRITTEN = (f"{LAKE_PREFIX}_alluvia/*", f"{LAKE_PREFIX}*/_alluvia/*", f"{LAKE_PREFIX}*/_delta_log/_last_checkpoint")
# Queries whose senders do not wait, and how they ended.
JOBS = f"{LAKE_PREFIX}_alluvia/jobs/"
# What keeps versions of tables: tags, clones and branches.
KEPT = f"{LAKE_PREFIX}_alluvia/kept/"
# What is written on branches, until it is published: files of their own, which no table of the lake has.
BRANCHES = f"{LAKE_PREFIX}_alluvia/branches/"
# Of the lake's own records, those that are tables: files of branches, and checkpoints of these and of streams.
TABLES_WITHIN = (
    *(f"{BRANCHES}*.{kind}" for kind in ("parquet", "bin")),
    *(f"{LAKE_PREFIX}_alluvia/*/_delta_log/*.{kind}" for kind in ("parquet", "json")),
)
NEITHER = {"s3:if-none-match": "true", "s3:if-match": "true"}
# Where people put files for a backfill to read.
INCOMING_PREFIX = "incoming/"
UNDO_DAYS = 7
CORS_SECONDS = 600
"""How long a browser remembers what a page may ask of the bucket."""
# A commit's name is its version, in 20 digits: every tenth of a table ends like this.
NOTIFIED_SUFFIX = "0.json"


class Storage(Construct):
    """One private bucket. Tables stand under `lake/`, files for backfills under `incoming/`.

    Encryption is SSE-S3, not KMS: IAM alone says who reads, the log is written and read in many small requests that KMS
    would each bill and throttle, and DuckDB, Spark and boto3 need no key grants.

    Versioning is on, although no object of a table is ever changed: a deleted file stays restorable for 7 days, and
    none of our roles may delete a version, so no bug of ours, vacuum included, destroys data permanently at once. It
    costs the storage of what vacuum deletes for a week, and an erasure is complete that week after vacuum. Listings
    and conditional writes see current versions only and work as without.
    """

    def __init__(self, scope: Construct, construct_id: str, *, cors_origins: Sequence[str]) -> None:
        super().__init__(scope, construct_id)
        self.logs = self._logs_bucket()
        self.bucket = self._lake_bucket(self.logs)
        if cors_origins:
            self._allow_pages(cors_origins)
        self._refuse_overwriting_commits()
        self.lake_uri = f"s3://{self.bucket.bucket_name}/{LAKE_PREFIX.rstrip('/')}"
        self.incoming_uri = f"s3://{self.bucket.bucket_name}/{INCOMING_PREFIX}"

    def allow_read(self, role: iam.Role, prefix: str = LAKE_PREFIX, *, itself: bool = False) -> None:
        """Lets `role` get and list the objects under `prefix`."""
        allow_read(role, self.bucket.bucket_arn, prefix, itself=itself)

    def allow_append(self, role: iam.Role, prefix: str = LAKE_PREFIX) -> None:
        """Lets `role` read the lake and put objects under `prefix` of it, not delete any.

        AbortMultipartUpload drops an upload that has not become an object; it can remove nothing that a reader sees.
        """
        self.allow_read(role)
        self._allow(role, prefix, "s3:PutObject", "s3:AbortMultipartUpload")

    def allow_results(self, role: iam.Role) -> None:
        """Lets `role` read the lake, and put jobs and results of queries where the lake keeps them; nothing else."""
        self.allow_read(role)
        self._allow(role, RESULTS, "s3:PutObject", "s3:AbortMultipartUpload")
        self._allow(role, JOBS, "s3:PutObject")

    def allow_publish(self, role: iam.Role) -> None:
        """Lets `role` put published queries where the lake keeps them."""
        self._allow(role, PUBLISHED, "s3:PutObject")

    def allow_release(self, role: iam.Role) -> None:
        """Lets `role` delete what keeps versions of tables, and what is written on branches; no file of a table."""
        self._allow(role, KEPT, "s3:DeleteObject")
        self._allow(role, BRANCHES, "s3:DeleteObject")

    def allow_delete(self, role: iam.Role) -> None:
        """Lets `role` delete objects of the lake, but no version of one: what it deletes can be restored for a week."""
        self._allow(role, LAKE_PREFIX, "s3:DeleteObject")

    def keep_access(self, roles: Sequence[iam.IRole], publishers: Sequence[iam.IRole]) -> None:
        """Lets none of `roles` write what says who may do what, nor published queries, which lend their rights.

        `publishers` may publish. The policies of the roles deny it, and so does the bucket's: if one is widened later,
        the other holds. Reading is not denied.
        """
        others = [role for role in roles if role not in publishers]
        for sid, keys, denied in (("AccessIsKept", ACCESS, roles), ("QueriesAreKept", (f"{PUBLISHED}*",), others)):
            self._deny(denied, sid=sid, actions=[*WRITES], resources=self._arns(keys))

    def keep_data(self, roles: Sequence[iam.IRole]) -> None:
        """Lets none of `roles` put anything but `REWRITTEN` without `If-None-Match` or `If-Match`.

        So what a function does wrong replaces no data file, deletion vector or checkpoint. Copies need the condition,
        too, and of a multipart upload, its completion: its other requests have none, and create no object.
        Source: "Enforce conditional writes on Amazon S3 buckets" in the S3 user guide.
        """
        conditions = {"Null": NEITHER, "Bool": {"s3:ObjectCreationOperation": "true"}}
        put = ["s3:PutObject"]
        rewritten, within = self._arns(REWRITTEN), self._arns(TABLES_WITHIN)
        self._deny(roles, sid="NothingIsWrittenOver", actions=put, not_resources=rewritten, conditions=conditions)
        self._deny(roles, sid="NorInTablesWithin", actions=put, resources=within, conditions=conditions)

    def _arns(self, keys: Sequence[str]) -> list[str]:
        return [self.bucket.arn_for_objects(key) for key in keys]

    def _deny(
        self,
        roles: Sequence[iam.IRole],
        *,
        sid: str,
        actions: list[str],
        resources: list[str] | None = None,
        not_resources: list[str] | None = None,
        conditions: Mapping[str, Any] | None = None,
    ) -> None:
        """Has the roles' own policies deny something, and the bucket's."""

        def statement(principals: list[iam.IPrincipal] | None, conditions: Mapping[str, Any]) -> iam.PolicyStatement:
            return iam.PolicyStatement(
                sid=sid,
                effect=iam.Effect.DENY,
                principals=principals,
                actions=actions,
                resources=resources,
                not_resources=not_resources,
                conditions=conditions,
            )

        own = conditions or {}
        for role in roles:
            role.add_to_principal_policy(statement(None, own))
        theirs = {**own, "ArnEquals": {"aws:PrincipalArn": [role.role_arn for role in roles]}}
        self.bucket.add_to_resource_policy(statement([iam.AnyPrincipal()], theirs))

    def notify(self, queue: sqs.Queue) -> None:
        """Has S3 send `queue` a message for every tenth commit of each table of the lake.

        The policy names the account, not the bucket: S3 checks it when the bucket is made, so it must come first, and
        cannot know the bucket's name. The reader of the queue refuses what comes from another bucket. The resource is
        configured directly, since CDK's own way deploys a function with rights on every bucket.
        """
        queue.add_to_resource_policy(
            iam.PolicyStatement(
                sid="NotificationsOfS3",
                principals=[iam.ServicePrincipal("s3.amazonaws.com")],
                actions=["sqs:SendMessage"],
                resources=[queue.queue_arn],
                conditions={"StringEquals": {"aws:SourceAccount": Aws.ACCOUNT_ID}},
            )
        )
        rules = [
            s3.CfnBucket.FilterRuleProperty(name=name, value=value)
            for name, value in (("prefix", LAKE_PREFIX), ("suffix", NOTIFIED_SUFFIX))
        ]
        commits = s3.CfnBucket.QueueConfigurationProperty(
            event="s3:ObjectCreated:Put",
            queue=queue.queue_arn,
            filter=s3.CfnBucket.NotificationFilterProperty(s3_key=s3.CfnBucket.S3KeyFilterProperty(rules=rules)),
        )
        bucket = self.bucket.node.default_child
        assert isinstance(bucket, s3.CfnBucket)  # noqa: S101 - narrows the type
        bucket.notification_configuration = s3.CfnBucket.NotificationConfigurationProperty(
            queue_configurations=[commits]
        )
        bucket.node.add_dependency(queue)

    def _allow(self, role: iam.Role, prefix: str, *actions: str) -> None:
        resource = self.bucket.arn_for_objects(f"{prefix}*")
        role.add_to_policy(iam.PolicyStatement(actions=[*actions], resources=[resource]))
        accept_wildcard(role, resource, "Tables come and go under the lake's prefix; the actions are named one by one.")

    def _lake_bucket(self, logs: s3.Bucket) -> s3.Bucket:
        return s3.Bucket(
            self,
            "Lake",
            block_public_access=s3.BlockPublicAccess.BLOCK_ALL,
            object_ownership=s3.ObjectOwnership.BUCKET_OWNER_ENFORCED,
            encryption=s3.BucketEncryption.S3_MANAGED,
            enforce_ssl=True,
            minimum_tls_version=1.2,
            versioned=True,
            removal_policy=RemovalPolicy.RETAIN,
            server_access_logs_bucket=logs,
            server_access_logs_prefix="lake/",
            lifecycle_rules=[
                s3.LifecycleRule(
                    id="drop-unfinished-uploads", abort_incomplete_multipart_upload_after=Duration.days(2)
                ),
                s3.LifecycleRule(
                    id="forget-deleted-objects",
                    noncurrent_version_expiration=Duration.days(UNDO_DAYS),
                    expired_object_delete_marker=True,
                ),
            ],
        )

    def _allow_pages(self, origins: Sequence[str]) -> None:
        """Lets pages of these sites put parts of uploads to presigned URLs, and pages get large results from them.

        A page gets a result by way of a redirect from the API. A browser then no longer says which site the page is of:
        it sends `Origin: null`. So every site is named for GET. That gives nobody a right to an object: the signature
        in the URL does, and browsers add no credentials of their own.
        Source: "HTTP-redirect fetch" and "serializing a request origin" in the Fetch standard.
        """
        self.bucket.add_cors_rule(
            allowed_origins=[*origins],
            allowed_methods=[s3.HttpMethods.PUT],
            allowed_headers=["*"],
            exposed_headers=["ETag"],
            max_age=CORS_SECONDS,
        )
        self.bucket.add_cors_rule(
            allowed_origins=["*"],
            allowed_methods=[s3.HttpMethods.GET, s3.HttpMethods.HEAD],
            allowed_headers=["*"],
            exposed_headers=["ETag", "Accept-Ranges", "Content-Range", "Content-Encoding"],
            max_age=CORS_SECONDS,
        )

    def _logs_bucket(self) -> s3.Bucket:
        logs = s3.Bucket(
            self,
            "AccessLogs",
            block_public_access=s3.BlockPublicAccess.BLOCK_ALL,
            object_ownership=s3.ObjectOwnership.BUCKET_OWNER_ENFORCED,
            encryption=s3.BucketEncryption.S3_MANAGED,
            enforce_ssl=True,
            minimum_tls_version=1.2,
            removal_policy=RemovalPolicy.RETAIN,
            lifecycle_rules=[
                s3.LifecycleRule(
                    id="expire", expiration=Duration.days(90), abort_incomplete_multipart_upload_after=Duration.days(2)
                )
            ],
        )
        accept(logs, "S1", "This bucket holds the access logs; logging the access to them would feed itself.")
        return logs

    def _refuse_overwriting_commits(self) -> None:
        """No principal, an administrator included, may PUT a commit file without `If-None-Match` or `If-Match`.

        The second is how erasure takes values out of a commit, after it has read it. A blind write has neither.
        That includes copies and multipart uploads, whose requests to begin carry no condition: commits are single PUTs.
        Source: "Enforce conditional writes on Amazon S3 buckets" in the S3 user guide.
        """
        self.bucket.add_to_resource_policy(
            iam.PolicyStatement(
                sid="CommitsAreNeverOverwritten",
                effect=iam.Effect.DENY,
                principals=[iam.AnyPrincipal()],
                actions=["s3:PutObject"],
                resources=[self.bucket.arn_for_objects("*/_delta_log/*.json")],
                conditions={"Null": NEITHER},
            )
        )


def allow_read(role: iam.Role, bucket_arn: str, prefix: str, *, itself: bool = False) -> None:
    """Lets `role` get and list the objects under `prefix` of a bucket. An empty prefix is the whole bucket.

    With `itself`, also an object with the prefix's name without the slash at its end: who is given `s3://bucket/a` as a
    source has to ask whether that is an object or a folder.

    The right to list is also what makes S3 answer 404, not 403, for an object that is absent, which readers of a log
    depend on; S3 then compares the object's key with the condition's prefix.
    """
    objects = f"{bucket_arn}/{prefix}*"
    name = prefix.rstrip("/") if itself else ""
    under_prefix = {"StringLike": {"s3:prefix": [f"{prefix}*", *([name] if name else [])]}}
    resources = [objects, *([f"{bucket_arn}/{name}"] if name else [])]
    role.add_to_policy(iam.PolicyStatement(actions=["s3:GetObject"], resources=resources))
    conditions = under_prefix if prefix else None  # who lists a whole bucket sends no prefix
    role.add_to_policy(iam.PolicyStatement(actions=["s3:ListBucket"], resources=[bucket_arn], conditions=conditions))
    accept_wildcard(role, objects, "Objects under one prefix are read whatever their names; nothing else is.")
