"""A person who answers the questions of agents, over a connection of their own."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator
from typing import Any

import hansard
from hansard.agents.policy.approvals import ListedApproval
from hansard.domain.approval import ApprovalStatus
from tests.agents.twins import Lab, TwinSession

WAIT_S = 60.0


class Person:
    """A person who answers questions in a thread; `seen` are the answered ones."""

    def __init__(self, lab: Lab, answers: list[bool], by: str) -> None:
        self.seen: list[ListedApproval] = []
        self._lab = lab
        self._answers = answers
        self._by = by
        self._over = threading.Event()
        self._error: list[BaseException] = []
        self._thread = threading.Thread(target=self._work)

    def _work(self) -> None:
        try:
            with hansard.connect(self._lab.workspace, data_dir=self._lab.data_dir) as record:
                deadline = time.monotonic() + WAIT_S
                while len(self.seen) < len(self._answers) and not self._over.is_set():
                    assert time.monotonic() < deadline, "nobody asked"
                    for each in record.approvals.list():
                        if each.standing is ApprovalStatus.PENDING:
                            grants = self._answers[len(self.seen)]
                            self.seen.append(each)
                            answer = record.approvals.grant if grants else record.approvals.deny
                            answer(each.approval.id, by=self._by, reason="because")
                            break
                    time.sleep(0.02)
        except BaseException as error:  # noqa: BLE001 -- raised again where the block ends
            self._error.append(error)

    @contextlib.contextmanager
    def at_work(self) -> Iterator[Person]:
        """Answer while the block runs; at its end check that every answer was given."""
        self._thread.start()
        try:
            yield self
        except BaseException:
            self._over.set()
            raise
        finally:
            self._thread.join()
        if self._error:
            raise self._error[0]


def person(lab: Lab, *answers: bool, by: str = "eva") -> contextlib.AbstractContextManager[Person]:
    """Start a person who grants (True) or denies (False) one question after the other."""
    return Person(lab, list(answers), by).at_work()


ASK = (hansard.ask_first("send_*", timeout_s=20),)
"""Rule that asks a person before something is sent."""


def sender(session: TwinSession, sent: list[str], **options: Any) -> Any:
    """Return a tool that sends, and notes the sent messages."""

    @session.tool(name="send_mail", **options)
    async def send_mail(to: str) -> str:
        sent.append(to)
        return f"sent to {to}"

    return send_mail
