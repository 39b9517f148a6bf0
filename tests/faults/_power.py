"""A disk that can lose its power: ext4 on a loop device, where that is permitted."""

from __future__ import annotations

import contextlib
import fcntl
import os
import struct
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

EXT4_IOC_SHUTDOWN = 0x8004587D
NO_LOG_FLUSH = 2
"""Linux' `EXT4_GOING_FLAGS_NOLOGFLUSH`: nothing more is written, not even the journal."""

BUSY_S = 30.0


class PowerDisk:
    """A mounted disk that loses at `cut` all that was not synced, as in a power cut."""

    def __init__(self, folder: Path, image: Path) -> None:
        self.folder = folder
        self._image = image

    def mount(self) -> None:
        """Mount it. Raises CalledProcessError."""
        run("mount", "-o", "loop", str(self._image), str(self.folder))

    def cut(self) -> None:
        """Cut the power: every write fails from here on."""
        fd = os.open(self.folder, os.O_RDONLY)
        try:
            fcntl.ioctl(fd, EXT4_IOC_SHUTDOWN, struct.pack("I", NO_LOG_FLUSH))
        finally:
            os.close(fd)

    def restart(self) -> None:
        """Mount it again. What used it has ended."""
        until_s = time.monotonic() + BUSY_S
        while True:
            try:
                run("umount", str(self.folder))
            except subprocess.CalledProcessError:
                if time.monotonic() > until_s:
                    raise
                time.sleep(0.05)
            else:
                break
        self.mount()


@contextlib.contextmanager
def power_disk(folder: Path, mib: int = 200) -> Iterator[PowerDisk]:
    """Mount a disk of so many MiB at a folder; skip where that is impossible."""
    folder.mkdir()
    image = folder.with_suffix(".img")
    with image.open("wb") as file:
        file.truncate(mib * 1024 * 1024)
    disk = PowerDisk(folder, image)
    try:
        run("mkfs.ext4", "-q", "-F", str(image))
        disk.mount()
    except (OSError, subprocess.CalledProcessError) as error:
        why = getattr(error, "stderr", "") or error
        pytest.skip(f"no ext4 can be mounted on a loop device here, so no power is cut: {why}")
    try:
        yield disk
    finally:
        run("umount", "-l", str(folder))


def run(*words: str) -> None:
    """Run a command. Raises OSError, CalledProcessError."""
    subprocess.run(words, check=True, capture_output=True, text=True)
