"""What published tables were asked once need not be asked again, in a quick run.

Planning one of the large questions (an audit, a comparison) takes DuckDB a quarter of a second, and
tests ask the same one in several forms. Where it is asked of the same tables, the answer is the one
that was given before; `make test-full` asks anew.
"""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import msgspec
import pytest

from hansard.inspect import comparison
from hansard.inspect.tables import _Tables
from hansard.projections.reader import Reader
from hansard.projections.report import Question, Report
from hansard.projections.report import report as compare
from tests.conftest import THOROUGH


@contextlib.contextmanager
def asked_once() -> Iterator[Callable[[], None]]:
    """Meanwhile, answers of our own questions and reports of comparisons are kept, by the file that
    was asked, its position and its digest. Gives what forgets them.
    """
    kept: dict[bytes, Any] = {}
    if THOROUGH:
        yield kept.clear
        return
    aside: list[_Tables] = []
    ask, beside = _Tables.rows, _Tables.aside

    def rows(self: _Tables, sql: str, given: Sequence[object] = ()) -> list[dict[str, Any]]:
        if self in aside:  # of temporary tables
            return ask(self, sql, given)
        stands = self.progress
        key = msgspec.json.encode([str(self.path), stands.position, stands.digest, sql, [*given]])
        if key not in kept:
            kept[key] = ask(self, sql, given)
        return copy.deepcopy(kept[key])

    @contextlib.contextmanager
    def apart(self: _Tables) -> Iterator[None]:
        aside.append(self)
        try:
            with beside(self):
                yield
        finally:
            aside.remove(self)

    def report(reader: Reader, question: Question) -> Report:
        key = msgspec.json.encode([str(reader.path), reader.position, reader.digest, question])
        if key not in kept:
            kept[key] = compare(reader, question)
        return copy.deepcopy(kept[key])

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_Tables, "rows", rows)
        patch.setattr(_Tables, "aside", apart)
        patch.setattr(comparison, "report", report)
        yield kept.clear
