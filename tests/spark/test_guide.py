from __future__ import annotations

import re
from pathlib import Path

from pyspark.sql import SparkSession

GUIDE = Path(__file__).parents[2] / "docs" / "guides" / "spark.md"


def test_the_blocks_of_the_guide_run(spark: SparkSession, tmp_path: Path) -> None:
    blocks = re.findall(r"^```python\n(.*?)^```$", GUIDE.read_text(), re.MULTILINE | re.DOTALL)
    assert len(blocks) == 6
    names = {"spark": spark}
    for block in blocks:
        # Spark and its workers have started elsewhere.
        there = re.sub(r"(?<=[\"'])(lake|checkpoints)(?=[/\"'])", rf"{tmp_path}/\1", block)
        exec(compile(there, "spark.md", "exec"), names)
