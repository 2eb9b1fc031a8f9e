"""Run the command line as `python -m alluvia.cli`."""

from __future__ import annotations

from alluvia.cli import main

main()
