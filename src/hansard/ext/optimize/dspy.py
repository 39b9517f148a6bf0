"""DSPy's COPRO as the search of `prompts.optimize`: each instruction that it tries is a version.

    from hansard.ext.optimize import dspy
    search = dspy.search(breadth=4, depth=3)
    prompts.optimize(record, "rag", tasks, evaluate=..., propose=ask, search=search)

DSPy words the requests to its model, so `propose` is that model here: it gets a text and an empty
list of results, and returns the answer. Requests and evaluations are the steps of the
optimisation's run; resuming a killed optimisation answers them from the record.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import dspy  # pyright: ignore[reportMissingImports] -- 370 MB, which our environment has not
from dspy.lm15 import Message, Response, TextPart, Usage, response_to_events  # pyright: ignore[reportMissingImports] -- 370 MB, which our environment has not
from dspy.teleprompt import COPRO  # pyright: ignore[reportMissingImports] -- 370 MB, which our environment has not

from hansard.domain.choices import counted
from hansard.domain.errors import BadValue
from hansard.ext.optimize.loop import (
    CANDIDATES_MAX,
    BudgetSpent,
    PromptCandidate,
    PromptSearch,
    Searcher,
)

BREADTH, DEPTH = 4, 3
"""Default number of instructions per round, and of rounds."""

_QUIETLY = {"num_threads": 1, "display_progress": False, "display_table": False}
"""Settings: run in the session's thread, without output on stdout."""


class _Stopped(BaseException):
    """Stops COPRO, which catches every `Exception` and continues."""


class _Attempts:
    """Tried texts in order, each with its mean and its parent."""

    def __init__(self, search: PromptSearch) -> None:
        self._search = search
        self._base = _stripped(search.text)
        self._shown = 0
        self.found = [PromptCandidate(text=search.text, score=search.mean(search.text))]

    def mean(self, text: str) -> float:
        """Return the mean of a text over the tasks of the search. Raises _Stopped."""
        target = self._search.text if text == self._base else text
        for each in self.found:
            if each.text == target:
                return each.score
        if len(self.found) >= CANDIDATES_MAX or self._search.left < len(self._search.tasks):
            raise _Stopped from BudgetSpent()
        try:
            score = self._search.mean(text)
        except Exception as error:
            raise _Stopped from error
        self.found.append(PromptCandidate(text=text, parents=(self._shown,), score=score))
        return score

    def ask(self, prompt: str) -> str:
        """Return the model's answer.

        A resulting text has the best text so far as its parent, since COPRO shows the model its
        attempts. Raises _Stopped.
        """
        places = range(len(self.found))
        self._shown = max(places, key=lambda place: (self.found[place].score, -place))
        try:
            return self._search.propose(prompt, [])
        except Exception as error:
            raise _Stopped from error


class _Engine:
    """Engine of DSPy's model: it calls `propose`."""

    def __init__(self, tried: _Attempts) -> None:
        self._tried = tried

    def complete(self, request: Any) -> Any:
        """Return the answer to all messages of a request."""
        system = request.system or ""
        first = system if isinstance(system, str) else "".join(each.text for each in system)
        parts = [first, *(each.text or "" for each in request.messages)]
        answer = self._tried.ask("\n\n".join(each for each in parts if each))
        return Response(
            id=None,
            model="propose",
            message=Message.assistant([TextPart(answer)]),
            finish_reason="stop",
            usage=Usage(input_tokens=0, output_tokens=0, total_tokens=0),
        )

    def stream(self, request: Any) -> Iterator[Any]:
        """Yield the answer as events."""
        yield from response_to_events(self.complete(request))

    def close(self) -> None:
        """Do nothing: no connection is open."""


class _Model(dspy.LM):  # type: ignore[misc,unused-ignore]  # it has no types
    """Model without a history, which COPRO would print to stdout."""

    def inspect_history(self, *given: Any, **named: Any) -> str:
        """Return an empty text: requests are on record."""
        del given, named
        return ""


class _Program(dspy.Module):  # type: ignore[misc,unused-ignore]  # it has no types
    """Program that COPRO optimises: the instructions of its one predictor are the prompt's text."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.prompt = dspy.Predict(dspy.Signature("tasks -> score", text))

    def forward(self, tasks: _Attempts) -> Any:
        """Return the text's result over all tasks."""
        return dspy.Prediction(score=tasks.mean(self.prompt.signature.instructions))


def _stripped(text: str) -> str:
    """Strip a text that COPRO proposes."""
    return text.strip('"').strip()


def search(*, breadth: int = BREADTH, depth: int = DEPTH) -> Searcher:
    """Return DSPy's search.

    Args:
        breadth: Instructions tried per round, two or more.
        depth: Rounds.

    Raises:
        BadValue: The breadth or depth is invalid; when it runs, the budget suffices for no
            candidate.
    """
    if breadth < 2 or depth < 1:  # noqa: PLR2004 -- as COPRO has it
        fact = f"{breadth} a round in {depth} rounds"
        raise BadValue("dspy.search", fact, "give breadth=2 or more, depth=1 or more")

    def searched(work: PromptSearch) -> list[PromptCandidate]:
        if work.left < 2 * len(work.tasks):
            fact = (
                f"{counted(work.left, 'evaluation')} are left, for "
                f"{counted(len(work.tasks), 'task')}"
            )
            raise BadValue("budget", fact, "give more, or fewer tasks")
        tried = _Attempts(work)
        optimizer = COPRO(
            prompt_model=_Model("propose", engine=_Engine(tried), cache=False),
            metric=lambda _asked, made, *_: made.score,
            breadth=breadth,
            depth=depth,
        )
        question = dspy.Example(tasks=tried).with_inputs("tasks")
        try:
            optimizer.compile(_Program(work.text), trainset=[question], eval_kwargs=_QUIETLY)
        except _Stopped as stopped:
            if not isinstance(stopped.__cause__, BudgetSpent):
                raise stopped.__cause__ or stopped from None
        return tried.found

    return searched
