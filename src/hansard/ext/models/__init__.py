"""Model calls of programs that were not written for Hansard: recorded, replayed, in SQL.

A slice on the public core; the commands `record`, `replay` and `calibrate` import it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hansard.bus.slices import Slice
from hansard.domain.steps import Step


def check_edit(name: str, step: Step, result: Any) -> None:
    """Raise BadValue for an answer of a person that the provider's client could not read."""
    from hansard.ext.models.edited import demand_body  # noqa: PLC0415 -- for edits alone

    demand_body(name, step, result)


SLICE = Slice(
    name="models",
    schema=Path(__file__).with_name("model_calls.sql").read_text("utf-8"),
    check_edit=check_edit,
)
"""The slice `models`: the view `model_calls`."""
