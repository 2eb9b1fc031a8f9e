"""Checkpoints, read and written: the two halves under one name."""

from __future__ import annotations

from alluvia.log.checkpoint_reader import parse_last_checkpoint, read_checkpoint
from alluvia.log.checkpoint_writer import last_checkpoint, write_checkpoint

__all__ = ["last_checkpoint", "parse_last_checkpoint", "read_checkpoint", "write_checkpoint"]
