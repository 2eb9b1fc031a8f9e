"""Queues that feed a function, each with its dead letters."""

from __future__ import annotations

from dataclasses import dataclass

from aws_cdk import Duration, RemovalPolicy
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_lambda_event_sources as sources
from aws_cdk import aws_sqs as sqs
from constructs import Construct

# All that SQS allows: ingest packs as many events into a message as fit.
MESSAGE_BYTES_MAX = 1024 * 1024


@dataclass(frozen=True, slots=True)
class QueueSpec:
    """A batch ends after so many messages, so many seconds or 6 MB. `kept`: the queue outlives the stack."""

    name: str
    batch_messages_max: int
    batch_window_seconds: int
    receives_max: int
    """A message that failed so often is not retried for ever: it is kept aside for 14 days, and an alarm goes off."""
    kept: bool
    fifo: bool = False
    """One message of a group is delivered at a time. Such a queue has no batch window."""
    invisible_timeouts: int = 6
    """Messages stay invisible for so many time-outs of the function."""


# One commit, not one per request. The events in these queues exist nowhere else.
EVENTS = QueueSpec("Events", 10_000, 20, 5, kept=True)
# Looking at a table takes milliseconds, so a batch is many. What is lost here comes again with the next sweep.
TABLES = QueueSpec("Tables", 100, 20, 3, kept=False)
# One run of a table for each message, so each has the function's whole time. A run that was killed is tried again soon:
# until then, its table stays as it is. What is lost here is due again a minute later.
STEPS = QueueSpec("Steps", 1, 0, 3, kept=False, fifo=True, invisible_timeouts=1)


class FunctionQueue(Construct):
    """`queue`, read by a function in batches, and `dead_letters`.

    Messages stay invisible for longer than the function may run, by default for six times its time-out and the window
    on top, as Lambda asks for, so a batch that is still being worked on is not delivered twice at once.
    """

    def __init__(self, scope: Construct, construct_id: str, *, spec: QueueSpec, timeout_seconds: int) -> None:
        super().__init__(scope, construct_id)
        self._spec = spec
        removal_policy = RemovalPolicy.RETAIN if spec.kept else RemovalPolicy.DESTROY
        self.dead_letters = sqs.Queue(
            self,
            "DeadLetters",
            fifo=spec.fifo or None,
            encryption=sqs.QueueEncryption.SQS_MANAGED,
            enforce_ssl=True,
            max_message_size_bytes=MESSAGE_BYTES_MAX,
            retention_period=Duration.days(14),
            removal_policy=removal_policy,
        )
        self.queue = sqs.Queue(
            self,
            spec.name,
            fifo=spec.fifo or None,
            # S3 cannot notify a queue under the AWS managed key of KMS.
            encryption=sqs.QueueEncryption.SQS_MANAGED,
            enforce_ssl=True,
            max_message_size_bytes=MESSAGE_BYTES_MAX,
            # Less than the dead letters' 14 days: a message keeps its age when it moves there.
            retention_period=Duration.days(4),
            removal_policy=removal_policy,
            visibility_timeout=Duration.seconds(spec.invisible_timeouts * timeout_seconds + spec.batch_window_seconds),
            dead_letter_queue=sqs.DeadLetterQueue(queue=self.dead_letters, max_receive_count=spec.receives_max),
        )

    def feed(self, function: lambda_.Alias, concurrency: int) -> None:
        """Has `function` called with batches, `concurrency` at once; what it reports as failed comes again."""
        function.add_event_source(
            sources.SqsEventSource(
                self.queue,
                batch_size=self._spec.batch_messages_max,
                max_batching_window=None if self._spec.fifo else Duration.seconds(self._spec.batch_window_seconds),
                max_concurrency=concurrency,
                report_batch_item_failures=True,
            )
        )
