"""Small disks to fill: a memory file system of its own for each test, where that is permitted."""

from __future__ import annotations

import contextlib
import itertools
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest


class Disk:
    """A disk of some MiB. `full()` leaves it without a free byte, `free()` makes room again."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._filler = folder / "filler"
        self._files = folder / "files"

    def full(self) -> None:
        """Leave nothing free."""
        with self._filler.open("ab", buffering=0) as file:
            for size in (64 * 1024, 1):
                with contextlib.suppress(OSError):
                    while True:
                        file.write(bytes(size))

    def no_more_files(self) -> None:
        """Leave room, but not for a file more. Of a disk that was made with few files."""
        self._files.mkdir()
        with contextlib.suppress(OSError):
            for number in itertools.count():
                (self._files / str(number)).touch()

    def free(self) -> None:
        """Make room again."""
        self._filler.unlink(missing_ok=True)
        shutil.rmtree(self._files, ignore_errors=True)

    def read_only(self) -> bool:
        """Mount it again, for reading only; whether it is. Not while a file is open for writing."""
        again = ["mount", "-o", "remount,ro", str(self.folder)]
        return subprocess.run(again, check=False, capture_output=True).returncode == 0


@contextlib.contextmanager
def small_disk(folder: Path, mib: int, files: int = 200) -> Iterator[Disk]:
    """Mount a disk of so many MiB and files at a folder; skip without permission."""
    folder.mkdir()
    options = ",".join([f"size={mib}m", f"nr_inodes={files}", "mode=700"])
    mount = ["mount", "-t", "tmpfs", "-o", options, "none", str(folder)]
    try:
        subprocess.run(mount, check=True, capture_output=True, text=True)
    except (OSError, subprocess.CalledProcessError) as error:
        pytest.skip(f"no file system may be mounted here, so no disk can be filled: {error}")
    try:
        yield Disk(folder)
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


class Embedded:
    """The embedded broker of a data directory, as `Stage` wants to know of a server."""

    def __init__(self, data_dir: Path, disk_wait_s: float = 60.0) -> None:
        self.data_dir = data_dir
        self.environment = {
            "HANSARD_DATA_DIR": str(data_dir),
            "HANSARD_DISK_WAIT_S": str(disk_wait_s),
        }
        self.login: dict[str, Any] = {"data_dir": data_dir, "disk_wait_s": disk_wait_s}
