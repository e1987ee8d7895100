"""On what kind of file system a folder lies: SQLite's write-ahead log needs memory that is shared on one machine, and true locks."""

from __future__ import annotations

import os
import re
from pathlib import Path

__all__ = ["mounts", "network_file_system"]

_NETWORK = {
    *(
        "9p",
        "afs",
        "beegfs",
        "ceph",
        "cifs",
        "coda",
        "davfs",
        "gfs2",
        "glusterfs",
        "gpfs",
        "lustre",
        "ncpfs",
        "nfs",
        "nfs4",
    ),
    *("ocfs2", "orangefs", "panfs", "pvfs2", "smb2", "smb3", "smbfs", "wekafs"),
}
_LOCAL_FUSE = {"fuse.encfs", "fuse.fuse-overlayfs", "fuse.gocryptfs", "fuse.ntfs-3g"}
_OCTAL = re.compile(r"\\([0-7]{3})")  # how the kernel writes a space in a path


def mounts() -> str:
    """The kernel's table of mounts; empty where there is none, as on macOS and Windows."""
    try:
        return Path("/proc/self/mountinfo").read_text(encoding="utf-8", errors="surrogateescape")
    except OSError:
        return ""


def network_file_system(path: Path, table: str) -> str | None:
    """The type of the network file system that a path lies on; None where it lies on another one, or nothing is known.

    A sandbox shows its own disk as 9p or FUSE at ``/``: that is none.

    Args:
        path: need not be there; links are followed.
        table: `mounts`.

    >>> table = "1 0 8:1 / / rw - ext4 /dev/sda rw\\n2 1 0:5 / /home rw shared:1 - nfs4 server:/home rw"
    >>> network_file_system(Path("/home/ann/run"), table), network_file_system(Path("/homes"), table)
    ('nfs4', None)
    """
    place, found = os.path.realpath(path), ("", "")
    for line in table.splitlines():
        before, _, after = line.partition(" - ")
        fields, kinds = before.split(), after.split()
        if len(fields) < 5 or not kinds:
            continue
        point = _OCTAL.sub(lambda octal: chr(int(octal[1], 8)), fields[4])
        # of two mounts on one point the later one is seen
        if (place == point or place.startswith(point.rstrip("/") + "/")) and len(point) >= len(found[0]):
            found = point, kinds[0]
    point, kind = found
    is_fuse = kind.startswith("fuse.") and kind not in _LOCAL_FUSE
    if point == "/" and (is_fuse or kind == "9p"):
        return None
    return kind if is_fuse or kind in _NETWORK else None
