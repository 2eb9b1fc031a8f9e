"""Tests. What Python compiles is kept, also what this process is about to import.

Tests start hundreds of processes: each would compile all that it imports, which takes longer than most tests.
"""

import os
import sys

os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False
