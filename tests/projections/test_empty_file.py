"""The empty file of the tables: made once, kept in the user's cache, and never trusted blindly."""

import os
from pathlib import Path

import pytest

from hansard.projections import store as module
from hansard.projections.store import empty_file

MADE = b"content of a file"


class Maker:
    """Makes the file, and counts."""

    made = 0

    def __call__(self) -> bytes:
        """Return the file."""
        self.made += 1
        return MADE


@pytest.fixture(name="cache")
def _cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache"


def _kept(cache: Path) -> list[Path]:
    return sorted((cache / "hansard").iterdir())


def test_it_is_made_once(cache: Path):
    """The second caller gets the stored, private file; whole and partial ones differ."""
    make = Maker()
    assert [empty_file(make, "whole") for _ in range(2)] == [MADE, MADE]
    assert make.made == 1
    [kept] = _kept(cache)
    assert kept.stat().st_mode & 0o777 == 0o600
    empty_file(make, "partial")
    assert make.made == 2
    assert len(_kept(cache)) == 2


def test_one_that_is_not_whole_is_not_kept(cache: Path):
    """A file without the views of a faulty slice is made again by the next process."""
    make = Maker()
    for count in (1, 2):
        assert empty_file(make, "whole", keeps=lambda: False) == MADE
        assert make.made == count
    assert not cache.exists()


@pytest.mark.parametrize("damage", [b"", b"short", MADE + b"\0" * 32])
def test_what_is_damaged_is_made_again(cache: Path, damage: bytes):
    """A file that is cut, changed or foreign fails its trailing digest and is made again."""
    make = Maker()
    empty_file(make, "whole")
    [kept] = _kept(cache)
    kept.write_bytes(damage)
    assert empty_file(make, "whole") == MADE
    assert make.made == 2
    assert empty_file(make, "whole") == MADE
    assert make.made == 2


def test_where_nothing_can_be_kept_it_is_made(cache: Path):
    """If the cache folder cannot be used, the file is made each time without an error."""
    cache.write_text("a file")
    make = Maker()
    assert [empty_file(make, "whole") for _ in range(2)] == [MADE, MADE]
    assert make.made == 2


def test_old_ones_of_other_versions_go(cache: Path):
    """Files of other versions that are a month old are removed when another is made."""
    make = Maker()
    empty_file(make, "whole")
    [old] = _kept(cache)
    long_ago = old.stat().st_mtime - module.OLD_S - 1
    os.utime(old, (long_ago, long_ago))
    empty_file(make, "partial")
    assert old not in _kept(cache)
