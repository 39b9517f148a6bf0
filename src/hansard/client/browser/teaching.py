"""Large teaches small: a student names elements, and a teacher where a check refuses its answer."""

from __future__ import annotations

from collections.abc import Mapping

from hansard.client.browser.browser import Model
from hansard.domain.errors import BadValue


class Teaching:
    """Two models for `run_experience(fallback=...)`. Made by `hansard.actions.teach`.

    What each is asked stands below a step of its own, `teach.student` or `teach.teacher`: their
    calls, tokens and cost are told apart in SQL.
    """

    def __init__(self, teacher: Model, student: Model) -> None:
        self.teacher = teacher
        """Is asked where the student names nothing that every check lets be done."""
        self.student = student
        """Is asked first."""

    @property
    def models(self) -> Mapping[str, Model]:
        """By role, in the order in which they are asked."""
        return {"student": self.student, "teacher": self.teacher}


def teach(*, teacher: Model, student: Model) -> Teaching:
    """Let a small model work with an experience, and a large one help it out.

    Where no recorded way finds the element of what may come next, the student is asked for it;
    where it names none, or a check function refuses the one it names, the teacher is. Each is a
    function, or a tool of kind `model`, that is given a text and answers with JSON, as
    `browser(model=...)` takes it.

    Args:
        teacher: The large one.
        student: The small one.

    Raises:
        BadValue: One of them cannot be called.
    """
    given: dict[str, object] = {"teacher": teacher, "student": student}
    for role, model in given.items():
        if not callable(model):
            fact = f"{model!r:.80} cannot be called"
            raise BadValue(role, fact, "give a function of a text, or a tool of kind model")
    return Teaching(teacher, student)
