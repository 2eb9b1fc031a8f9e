from __future__ import annotations

from pathlib import Path

import alluvia
from tests import judges
from tests.reach.alluvia_on_spark import ROWS
from tests.reach.delta_spark import BY_SPARK, DeltaSpark, judged

pytestmark = BY_SPARK


def test_delta_spark_reads_what_we_write_on_spark(delta_spark: DeltaSpark, tmp_path: Path) -> None:
    delta_spark.write_by_alluvia(tmp_path)
    lake = alluvia.connect(str(tmp_path))
    for name, count in ROWS.items():
        table = lake[name]
        for version in judged(table.version):
            theirs, mine = delta_spark.read(table, version), table.scan(version=version).read_all()
            assert judges.canonical(mine) == judges.canonical(theirs), (name, version)
            assert judges.kinds(mine.schema) == judges.kinds(theirs.schema), (name, version)
        assert table.count() == count
