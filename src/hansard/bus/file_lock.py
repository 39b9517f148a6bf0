"""Locks on files and folders (flock), by open descriptors.

A lock is held until the last descriptor that shares it is closed, that of a child which inherited
it, too; so whoever is killed lets go. docs/decisions/0007 says why no library does this.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import time


def take(fd: int, *, shared: bool = False) -> bool:
    """Try to lock an open file; whether it is held now. Raises OSError where there are no locks."""
    try:
        fcntl.flock(fd, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def take_by(deadline: float, fd: int, pause_s: float, *, shared: bool = False) -> bool:
    """As `take`, until it is held or the deadline (time.monotonic) is over, at least once; flock
    has no timeout of its own. Blocks.
    """
    while not take(fd, shared=shared):
        if time.monotonic() >= deadline:
            return False
        time.sleep(pause_s)
    return True


def release(fd: int) -> None:
    """Unlock and close. Closing alone would leave the lock with a child forked meanwhile."""
    with contextlib.suppress(OSError):  # there are no locks where it stands
        fcntl.flock(fd, fcntl.LOCK_UN)
    os.close(fd)
