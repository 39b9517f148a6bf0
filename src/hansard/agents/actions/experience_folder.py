"""An experience's folder: written whole or not at all, and read as bytes from outside."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import TypeGuard

from hansard.bus.file_lock import write_whole
from hansard.domain.errors import BadValue
from hansard.domain.experience import checks as checking
from hansard.domain.experience import experience as experiences
from hansard.domain.experience.experience import CHECKS, FILES, Experience

FILE_BYTES_MAX = 16 * 1024 * 1024


def is_name(given: object) -> TypeGuard[str]:
    """Whether what is given names an experience that the record keeps: a text without a slash; one
    with a slash is a folder's path (`./invite`), as a `Path` is.
    """
    return isinstance(given, str) and "/" not in given and os.sep not in given


def write_folder(experience: Experience, folder: Path) -> None:
    """Write all files of an experience into a folder that is not there yet.

    They are written beside it first, so that a kill leaves the whole folder or none.

    Raises:
        BadValue: Something of that name is there, or it cannot be written.
    """
    told = experiences.files(experience)
    if folder.exists():
        raise BadValue(str(folder), "it is there already", "name a folder that is not")
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(
            prefix=f".{folder.name}.", dir=folder.parent, ignore_cleanup_errors=True
        ) as beside:
            made = Path(beside) / folder.name
            made.mkdir()
            for name, raw in told.items():
                write_whole(made / name, raw)
            made.rename(folder)
    except OSError as error:
        fact = f"it cannot be written: {error.strerror}"
        raise BadValue(str(folder), fact, "name a folder that can be written") from error


def read_folder(folder: Path) -> Experience:
    """The experience of a folder; nothing in it is run.

    Raises:
        BadValue: A file is missing, a link, too large, or says what cannot be.
    """
    told: dict[str, bytes] = {}
    for name in FILES:
        path = folder / name
        try:
            if path.is_symlink():
                raise BadValue(str(path), "it is a link", "give files, not links")
            if not path.exists():
                continue
            if path.stat().st_size > FILE_BYTES_MAX:
                fact = f"more than {FILE_BYTES_MAX:,} bytes"
                raise BadValue(str(path), fact, "distil it again, from fewer runs")
            told[name] = path.read_bytes()
        except OSError as error:
            fact = f"it cannot be read: {error.strerror}"
            raise BadValue(str(path), fact, "give a folder that can be read") from error
    return experiences.read(told, str(folder))


def confirm(folder: Path, names: Sequence[str] = ()) -> Experience:
    """Write down the checks that a person confirms: those named, or all that are proposed.

    Raises:
        BadValue: The folder cannot be read, or none of its proposed checks has that name.
    """
    experience = read_folder(folder).confirmed(*names)
    write_whole(folder / CHECKS, checking.encode(experience.checks))
    return experience
