"""The commands and the Python of the guide run, in its order."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

import alluvia
from tests.flight.serving import serving_flight

GUIDE = Path(__file__).parents[2] / "docs" / "guides" / "flight-sql.md"


def blocks(kind: str) -> list[str]:
    return re.findall(rf"^```{kind}\n(.*?)^```$", GUIDE.read_text(), re.MULTILINE | re.DOTALL)


def test_the_guide(tmp_path: Path) -> None:
    (command,) = blocks("bash")
    *start, port, writes = shlex.split(command)
    assert start == ["alluvia", "serve", "--lake", "lake", "--flight-port"]
    with serving_flight(tmp_path / "lake", writes) as served:
        names: dict[str, Any] = {}
        for block in blocks("python"):
            exec(compile(block.replace(port, str(served.flight_port)), GUIDE.name, "exec"), names)
        names["connection"].close()
    assert alluvia.connect(tmp_path / "lake")["deliveries"].count() == 2


def test_the_guide_with_a_token() -> None:
    from adbc_driver_flightsql import DatabaseOptions

    (block,) = blocks("py")
    assert DatabaseOptions.AUTHORIZATION_HEADER.value in block  # which the tests of rights connect with
