"""Run the command line as `python -m alluvia`."""

from __future__ import annotations

from alluvia.cli import main

if __name__ == "__main__":
    main()
