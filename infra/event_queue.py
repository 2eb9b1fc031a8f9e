"""The queue between the HTTP API and the function that commits, with its dead letters."""

from __future__ import annotations

from aws_cdk import Duration, RemovalPolicy
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_lambda_event_sources as sources
from aws_cdk import aws_sqs as sqs
from constructs import Construct

# A batch ends after 10,000 messages, 20 seconds or 6 MB, whichever comes first: one commit, not one per request.
BATCH_MESSAGES_MAX = 10_000
BATCH_WINDOW_SECONDS = 20
# All that SQS allows: ingest packs as many events into a message as fit.
MESSAGE_BYTES_MAX = 1024 * 1024
# A message that failed five times is not retried for ever: it is kept aside for 14 days, and an alarm goes off.
RECEIVES_MAX = 5


class EventQueue(Construct):
    """`queue`, read by `consumer` in batches, and `dead_letters`.

    Messages stay invisible for six times the function's time-out and the window on top, as Lambda asks for, so a batch
    that is still being committed is not delivered twice at once. Both queues hold events that exist nowhere else, so
    they outlive the stack.
    """

    def __init__(self, scope: Construct, construct_id: str, *, timeout_seconds: int) -> None:
        super().__init__(scope, construct_id)
        self.dead_letters = sqs.Queue(
            self,
            "DeadLetters",
            encryption=sqs.QueueEncryption.SQS_MANAGED,
            enforce_ssl=True,
            max_message_size_bytes=MESSAGE_BYTES_MAX,
            retention_period=Duration.days(14),
            removal_policy=RemovalPolicy.RETAIN,
        )
        self.queue = sqs.Queue(
            self,
            "Events",
            encryption=sqs.QueueEncryption.SQS_MANAGED,
            enforce_ssl=True,
            max_message_size_bytes=MESSAGE_BYTES_MAX,
            # Less than the dead letters' 14 days: a message keeps its age when it moves there.
            retention_period=Duration.days(4),
            removal_policy=RemovalPolicy.RETAIN,
            visibility_timeout=Duration.seconds(6 * timeout_seconds + BATCH_WINDOW_SECONDS),
            dead_letter_queue=sqs.DeadLetterQueue(queue=self.dead_letters, max_receive_count=RECEIVES_MAX),
        )

    def feed(self, consumer: lambda_.Alias, concurrency: int) -> None:
        """Has `consumer` called with batches, `concurrency` at once; what it reports as failed comes again.

        One log takes about 15 conditional writes a second: 8 committers of a table seldom wait for each other.
        """
        consumer.add_event_source(
            sources.SqsEventSource(
                self.queue,
                batch_size=BATCH_MESSAGES_MAX,
                max_batching_window=Duration.seconds(BATCH_WINDOW_SECONDS),
                max_concurrency=concurrency,
                report_batch_item_failures=True,
            )
        )
