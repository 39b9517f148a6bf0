"""Result files of tau-bench and tau2-bench, read as chats."""

from __future__ import annotations

from typing import Any

import msgspec

from hansard.agents.importers.chat import (
    SOURCE_RUN,
    TOOL,
    ChatRun,
    Ending,
    ImportDefaults,
    Message,
    Whole,
    labels_of,
    metrics,
    text_of,
)
from hansard.domain import ids

TAU_BENCH = "tau-bench"
TAU2_BENCH = "tau2-bench"

TAU_ERROR = "Error:"
"""Prefix of a failed tool's result in tau-bench."""

TAU2_METRICS = ("agent_cost", "user_cost", "duration")
"""Measurements of a tau2-bench simulation besides its reward: US dollars and seconds."""


class _Tau(msgspec.Struct, frozen=True):
    """A run of tau-bench."""

    task_id: str | int
    traj: list[Message]
    reward: float | None = None
    info: Any = None
    trial: Whole | None = None


class _Tau2(msgspec.Struct, frozen=True):
    """A simulation of tau2-bench."""

    id: str
    task_id: str | int
    messages: list[Message]
    trial: Whole | None = None
    reward_info: dict[str, Any] | None = None
    termination_reason: str | None = None
    start_time: str | None = None
    end_time: str | None = None
    agent_cost: float | None = None
    user_cost: float | None = None
    duration: float | None = None


class _Party(msgspec.Struct, frozen=True):
    implementation: str | None = None
    llm: str | None = None


class _Environment(msgspec.Struct, frozen=True):
    domain_name: str | None = None


class _Tau2Info(msgspec.Struct, frozen=True):
    """Header of a tau2-bench file, common to all its simulations."""

    git_commit: str | None = None
    agent_info: _Party | None = None
    user_info: _Party | None = None
    environment_info: _Environment | None = None


class Tau2File(msgspec.Struct, frozen=True):
    """A tau2-bench result file without its simulations, or a submission, whose `results` are the
    published figures by domain.
    """

    info: _Tau2Info | None = None
    results: dict[str, Any] | None = None


class Claims(msgspec.Struct, frozen=True):
    """Figures that a submission claims for an arm, by domain and metric; domain "" if it names
    none.
    """

    figures: dict[str, dict[str, float]]


def from_tau(raw: Any, defaults: ImportDefaults) -> ChatRun:
    """Convert a run of tau-bench; a run that broke has an error in its `info`. Raises
    ValidationError.
    """
    run = msgspec.convert(raw, _Tau)
    messages = [_by_convention(message) for message in run.traj]
    error = run.info.get("error") if isinstance(run.info, dict) else None
    known = run.reward is not None or run.info is not None
    return ChatRun(
        format=TAU_BENCH,
        content=defaults.beside(raw),
        workflow=TAU_BENCH,
        experiment=defaults.experiment or "",
        arm=defaults.arm or "",
        task=str(run.task_id),
        trial=run.trial,
        labels=labels_of(raw, _Tau.__struct_fields__),
        messages=messages,
        raw_messages=raw["traj"],
        ending=Ending(
            metrics=metrics({"reward": run.reward}),
            details=run.info,
            error=text_of(error) if error is not None else None,
        )
        if known
        else None,
    )


def _by_convention(message: Message) -> Message:
    """Mark a tool's message as failed if its text begins with `TAU_ERROR`."""
    content = message.content
    if message.role != TOOL or not isinstance(content, str) or not content.startswith(TAU_ERROR):
        return message
    return msgspec.structs.replace(message, error=True)


def labels_of_file(info: _Tau2Info | None) -> dict[str, str]:
    """Return a tau2-bench file's header as labels."""
    if info is None:
        return {}
    agent, user = info.agent_info or _Party(), info.user_info or _Party()
    parts = {
        "domain": info.environment_info.domain_name if info.environment_info else None,
        "agent": agent.implementation,
        "agent_llm": agent.llm,
        "user": user.implementation,
        "user_llm": user.llm,
        "git_commit": info.git_commit,
    }
    return {name: text for name, text in parts.items() if text}


def from_tau2(raw: Any, defaults: ImportDefaults, of_file: dict[str, str]) -> ChatRun:
    """Convert a simulation of tau2-bench. Raises ValidationError."""
    run = msgspec.convert(raw, _Tau2)
    reward = run.reward_info.get("reward") if run.reward_info is not None else None
    reason = run.termination_reason
    measured = {name: getattr(run, name) for name in TAU2_METRICS}
    ended = reason is not None or run.reward_info is not None
    return ChatRun(
        format=TAU2_BENCH,
        content=defaults.beside(raw),
        workflow=TAU2_BENCH,
        experiment=defaults.experiment or "",
        arm=defaults.arm or "",
        task=str(run.task_id),
        trial=run.trial,
        labels={
            SOURCE_RUN: run.id,
            **of_file,
            **({"termination_reason": reason} if reason is not None else {}),
            **labels_of(raw, _Tau2.__struct_fields__),
        },
        began_at=run.start_time,
        messages=run.messages,
        raw_messages=raw["messages"],
        ending=Ending(
            metrics=metrics({"reward": reward, **measured}),
            details=run.reward_info,
            error=reason if reason is not None and "error" in reason else None,
            at=run.end_time,
        )
        if ended
        else None,
    )


def claims_of(results: dict[str, Any]) -> Claims:
    """Return a submission's numbers; values that are not numbers are left out. Raises BadValue."""
    figures: dict[str, dict[str, float]] = {}
    of_none = {name: value for name, value in results.items() if not isinstance(value, dict)}
    domains = {name: value for name, value in results.items() if isinstance(value, dict)}
    for domain, values in ({"": of_none} | domains).items():
        numbers = {name: value for name, value in values.items() if type(value) in {int, float}}
        if numbers:
            where = f"results.{domain}" if domain else "results"
            figures[ids.name("domain", domain) if domain else ""] = metrics(numbers, where)
    return Claims(figures)
