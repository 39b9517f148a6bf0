"""Values that stand in another form than in the task's text: dates, in a closed set of forms. Pure.

A task says `03/09/2017` where the page takes `2017-03-09`: the slot `{{day_iso_date}}` is the slot
`{{day}}` in that form, and is filled in from it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import date, datetime

from hansard.domain.values import Secret

FORMS = {
    "iso_date": "%Y-%m-%d",
    "us_date": "%m/%d/%Y",
    "german_date": "%d.%m.%Y",
    "long_date": "%B %d, %Y",
}
"""The forms by name, as `datetime.strptime` has them. Of `1/2/2017` the first is the month."""


def _date(text: str) -> date | None:
    for form in FORMS.values():
        try:
            return datetime.strptime(text, form).date()  # noqa: DTZ007 -- a date has no zone
        except ValueError:
            continue
    return None


def forms_of(name: str, value: str) -> dict[str, str]:
    """A value in its other forms, by the names of their slots; empty where it has none."""
    found = _date(value)
    if found is None:
        return {}
    told = {f"{name}_{form}": found.strftime(as_it_is) for form, as_it_is in FORMS.items()}
    return {slot: text for slot, text in told.items() if text != value}


def base_of(slot: str, slots: Iterable[str]) -> str:
    """The slot that another one is a form of; empty where it is none's."""
    known = set(slots)
    bases = (slot.removesuffix(f"_{form}") for form in FORMS if slot.endswith(f"_{form}"))
    return next((base for base in bases if base in known), "")


def with_forms(slots: Iterable[str], params: Mapping[str, str | Secret]) -> dict[str, str | Secret]:
    """Values, and those of slots that are another form of one of them."""
    made = dict(params)
    for slot in slots:
        base = base_of(slot, params)
        value = params.get(base)
        found = _date(value) if isinstance(value, str) else None
        if slot not in made and found is not None:
            made[slot] = found.strftime(FORMS[slot.removeprefix(f"{base}_")])
    return made
