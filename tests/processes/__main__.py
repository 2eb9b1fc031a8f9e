"""`python -m tests.processes --seconds 60 --store directory|moto|s3proxy [--seed N]`: one run, and its counts."""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
from pathlib import Path

from tests.processes.chaos import STORES, place, run


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.processes")
    parser.add_argument("--store", choices=STORES, action="append", help="may be given several times; all by default")
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 32), help="of what is killed, cut and when")
    arguments = parser.parse_args()
    for store in arguments.store or STORES:
        keep = Path(tempfile.gettempdir()) / f"alluvia-chaos-{store}-{arguments.seed}"
        with tempfile.TemporaryDirectory(prefix="alluvia-lake-") as name:
            try:
                with place(store, Path(name), arguments.seed) as where:
                    report = run(where, store, arguments.seconds, arguments.seed, keep)
            except AssertionError as error:
                sys.stderr.write(f"{store}, seed {arguments.seed}: {error}\njournals: {keep}\n")
                return 1
        sys.stdout.write(f"{report}\n\n")
        sys.stdout.flush()
    return 0


if __name__ == "__main__":
    sys.exit(main())
