"""Whether what tags, clones and branches keep is there: versions that are older than the oldest readable one."""

from __future__ import annotations

from alluvia.commit.handle import TableHandle
from alluvia.delta.log.actions import AddFile
from alluvia.delta.snapshot import Snapshot
from alluvia.errors import Corrupt, VersionExpired, VersionNotFound
from alluvia.verify.file_checks import Place, check_live_files
from alluvia.verify.objects import Objects
from alluvia.verify.report import Findings


def check_kept(handle: TableHandle, objects: Objects, oldest: int, findings: Findings) -> list[AddFile]:
    """Report kept versions that cannot be read, or whose files are missing. Returns the files that they need.

    Two LISTs if any version has been given up, and what reading the versions costs.
    """
    files: list[AddFile] = []
    try:
        versions = sorted(handle.kept_versions(oldest)) if oldest else []
    except Corrupt as error:
        findings.add("kept-version-unreadable", str(error))
        return files
    for version in versions:
        try:
            with handle.lock:
                state = handle.log.at(version)
            snapshot = Snapshot(state, handle.root, handle.name, handle.store)
            needed = list(state.files)
        except (Corrupt, VersionExpired, VersionNotFound) as error:
            msg = f"version {version}, which a tag, a clone or a branch keeps, cannot be read: {error}"
            findings.add("kept-version-unreadable", msg, version=version)
            continue
        found = Findings()
        check_live_files(Place(handle.store, snapshot, objects, whole=True), needed, found)
        for each in found.worst_first():
            msg = f"version {version}, which a tag, a clone or a branch keeps: {each.message}"
            findings.add("kept-file-damaged", msg, version=version, file=each.file)
        files += needed
    return files
