"""Forked substitutes of the package's own processes, for quick runs; others start real ones."""

import contextlib
import functools
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from hansard.broker import lease
from hansard.projections.sql_sandbox import sandbox
from tests.faults import _warm


@functools.cache
def python() -> str:
    """Return the Python of `tests.faults._warm` for supervisors, which start in `/`."""
    path = _warm.python()
    if path == sys.executable:
        return path
    script = Path(path).with_name("python-P")
    script.write_text(f'#!/bin/sh\n[ "$1" = -P ] && shift\nexec {path} "$@"\n')
    script.chmod(0o700)
    return str(script)


class _Sys:
    """A substitute for `sys` with the used attributes only; a forking test begins on request."""

    @property
    def executable(self) -> str:
        return python()


@contextlib.contextmanager
def forked() -> Iterator[None]:
    """Make supervisors forks inside the block."""
    with pytest.MonkeyPatch.context() as patch:
        for module in (sandbox, lease):
            patch.setattr(module, "sys", _Sys())
        yield
