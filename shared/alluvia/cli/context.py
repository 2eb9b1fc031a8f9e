"""The Lambda context of a handler that runs locally."""

from __future__ import annotations

from alluvia.clock import Clock

TIME_LIMIT_MS = 15 * 60 * 1000


class LocalContext:
    """The attributes of a Lambda context that handlers and loggers use."""

    memory_limit_in_mb = "0"
    function_version = "$LATEST"
    log_group_name = ""
    log_stream_name = ""

    def __init__(self, function_name: str, clock: Clock) -> None:
        self.function_name = function_name
        self.invoked_function_arn = f"arn:aws:lambda:local:0:function:{function_name}"
        self.aws_request_id = clock.new_id()
        self._clock = clock
        self._started_ms = clock.now_ms()

    def get_remaining_time_in_millis(self) -> int:
        """Milliseconds until a Lambda would be stopped."""
        return max(0, self._started_ms + TIME_LIMIT_MS - self._clock.now_ms())
