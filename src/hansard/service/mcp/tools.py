"""The tools that a client is offered, their names, and descriptions of their parameters."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Any

from hansard.domain.choices import nearest
from hansard.domain.errors import BadValue

ALL, DEFAULT = "all", "default"
"""Names of groups."""

IN_A_RUN = ("start_run", "resume_run", "leave_run")
"""Tools without which no other can name a run."""

GROUPS: dict[str, tuple[str, ...]] = {
    DEFAULT: (
        *IN_A_RUN,
        *("record_step", "message", "decide", "checkpoint", "why"),
        *("board_put", "board_entry", "board_keys"),
        *("team_add", "team_claim", "team_complete", "team_tasks", "team_send", "team_inbox"),
        *("memory_search", "memory_entry", "memory_remember"),
    ),
    "run": (
        *IN_A_RUN,
        *("fork_run", "view_run", "list_runs", "record_step", "message", "context", "decide"),
        *("checkpoint", "checkpoint_data", "latest_checkpoint", "resource", "hand_off"),
    ),
    "ask": ("list_runs", "view_run", "sql", "why", "compare", "egress"),
    "actions": (
        *("list_action_caches", "action_cache_log", "action_cache"),
        *("keep_actions", "revert_actions", "review_actions"),
    ),
    "experiences": ("list_experiences", "find_experience", "experience"),
    "harness": ("fetch_context", "update_context"),
}
"""Groups by name. `board`, `team` and `memory` are groups of the tools with that prefix."""

PREFIXED = ("board", "team", "memory")

_PREFIX = re.compile(r"[a-z][a-z0-9_]{0,31}")


def chosen(selection: Sequence[str], known: Iterable[str]) -> list[str]:
    """Return the tools of some groups and names, in the order that they are known in.

    Raises BadValue for what is neither a group nor a tool.
    """
    tools = [*known]
    found: set[str] = set()
    for name in selection:
        if name == ALL:
            found.update(tools)
        elif name in GROUPS:
            found.update(GROUPS[name])
        elif name in PREFIXED:
            found.update(each for each in tools if each.startswith(f"{name}_"))
        elif name in tools:
            found.add(name)
        else:
            groups = [ALL, *GROUPS, *PREFIXED]
            remedy = f"{nearest(name, [*groups, *tools])}groups are {', '.join(groups)}"
            raise BadValue("--tools", f"{name!r:.80} is neither a group nor a tool", remedy)
    return [each for each in tools if each in found]


def prefixed(prefix: str, name: str) -> str:
    """Return a tool's name under a prefix. Raises BadValue for a prefix that is no name."""
    if prefix and not _PREFIX.fullmatch(prefix):
        fact = f"{prefix!r:.80} is not a valid prefix"
        raise BadValue("--prefix", fact, "give lower-case letters, digits and _")
    return f"{prefix}_{name}" if prefix else name


REWORDED = {
    r"\bls\(\)": "memory_ls",
    r"\bentry\(\)": "memory_entry",
    r"'hansard memory (ls|glob|grep|search|history)[^']*'": r"memory_\1",
    r"'hansard memory log[^']*'": "memory_history",
    r"'hansard memory (?:show|cat)[^']*'": "memory_entry",
    r"'hansard runs[^']*'": "list_runs",
    r"'hansard sql[^']*'": "sql",
    r"'hansard actions[^']*'": "list_action_caches",
    r"'hansard experience[^']*'": "list_experiences",
    r"\bsession\.(board|team|memory)\.(\w+)(?:\(\))?": r"\1_\2",
    r"\b(board|team|memory)\.(?=(\w+)\()(\w+)": r"\1_\3",
}
"""Methods and commands in errors, and the tools that do the same."""


def for_client(text: str, names: Mapping[str, str]) -> str:
    """Return an error's text with the tools that a client can call, by their own names."""
    for pattern, tool in REWORDED.items():
        text = re.sub(pattern, partial(_offered, tool, names), text)
    return text


def _offered(tool: str, names: Mapping[str, str], found: re.Match[str]) -> str:
    name = found.expand(tool)
    return names.get(name, name)


PARAMETERS: dict[str, str] = {
    "action_cache.name": "Name of the action cache, as in list_action_caches.",
    "agent": "Name of the agent; omit it to address any agent of the role.",
    "agent_id": "Name of this client's own agent, as returned by start_run.",
    "all_pairs": "Compare every pair of arms, not only each with the baseline.",
    "alternatives": "The options that were considered and not selected.",
    "amount": "Whole number to add; negative to subtract.",
    "arguments": "Arguments of the call, by name.",
    "arm": "Arm of the experiment that this run belongs to.",
    "at": "A point in time: agent@version or an ISO 8601 time. Omit it for now.",
    "baseline": "Arm that the others are compared with.",
    "budget": "Most characters of the returned text.",
    "by": "Label or column by which the results are split.",
    "cache": "The cache, an object of the format hansard.actions.v1.",
    "change": "Id of the change, as in memory_history.",
    "checkpoint.name": "Name of the stage, such as 'drafted'.",
    "checkpoint_data.name": "Name of the checkpoint.",
    "confidence": "Confidence in the decision, from 0 to 1.",
    "content": "Content of the message: a text, or any JSON value.",
    "context": "The new context: files by path, and lines of preferences.",
    "conversation": "Id of the conversation that the run continues.",
    "data": "Values of this stage, by name; checkpoint_data returns them.",
    "decision": "Id or decision:// address of a decision; a run's id for all of its decisions.",
    "effects": "shadow: effects of the fork are withheld; live: they happen.",
    "error": "The reason of the failure; empty if there was none.",
    "expected": "Version that the key must be at, or 'any'. By default the one last seen.",
    "experience.name": "Name of the experience, as in list_experiences.",
    "experiment": "Name of the experiment.",
    "fields": "Further fields of the message in the provider's form, by name.",
    "find_experience.address": "URL or host of the task.",
    "find_experience.task": "The task, in words.",
    "find_experience.tools": "Names of the available tools.",
    "folder": "Folder whose files are listed; empty for all.",
    "glob": "Pattern of paths that are searched, such as skills/**.",
    "higher_is_better": "Metrics of which more is better.",
    "inputs": "What the decision was based on: addresses, ids or facts.",
    "item": "The item, any JSON value.",
    "key": "Key of the shared state, such as findings/1.",
    "kind": "procedural, semantic or episodic; omit it for all.",
    "labels": "Labels by name.",
    "lease_s": "Seconds that the task stays claimed unless it is extended.",
    "limit": "Most results.",
    "line": "Number of the line after which the text is inserted; 0 for the start.",
    "link": "Path that the file links to, instead of a text.",
    "lower_is_better": "Metrics of which less is better.",
    "merge": "max, min (numbers or texts), or union (objects).",
    "metric": "Metric to compare; omit it for all.",
    "missing": "How trials without a result count.",
    "name": "Name of the action cache, as in list_action_caches.",
    "new": "Text that replaces the old one.",
    "old": "Text to replace, exactly; it must occur once in the file.",
    "operation": "The kind of use, such as read or write.",
    "ops": "The changes, in order.",
    "parameters": "Values for $1, $2 and so on, in order.",
    "path": "Path of the file, such as skills/review/SKILL.md.",
    "memory_glob.pattern": "Glob pattern of paths, such as skills/**.",
    "memory_grep.pattern": "Regular expression (RE2).",
    "memory_search.question": "Search text, in words.",
    "payload": "Data that the receiver needs to continue, any JSON value.",
    "query": "A DuckDB SELECT statement.",
    "question": "The question that was decided.",
    "reason": "Reason, for readers of the record.",
    "resolve": "On a conflict: 'last writer' replaces, 'merge' unites objects.",
    "result": "The result, any JSON value.",
    "retired": "Include experiences that were retired.",
    "role": "Name of the role; omit it for any.",
    "message.role": "Role of the author.",
    "run_id": "The run, as returned by start_run.",
    "selected": "The option that was selected.",
    "sources": "Addresses of the sources of the text.",
    "space": "Memory space, such as org or agent/NAME; omit it for the agent's own.",
    "status": "Only runs with this status, such as running, completed or failed.",
    "sync_type": "incremental: files that are not named stay; full: the agent's own are deleted.",
    "task": "Name of the task that the run is a trial of.",
    "team_add.task": "Id for the new task; omit it to have one made.",
    "team_reopen.task": "Id of the failed task.",
    "team_wait_for.task": "Id of the task to wait for.",
    "team_wait_for.key": "Key of the shared state to wait for.",
    "text": "The text.",
    "threshold": "Least confidence required.",
    "timeout_s": "Most seconds to wait.",
    "timestamp": "The timestamp returned by fetch_context.",
    "title": "The task, in one line.",
    "to": "Name of the agent or role.",
    "memory_rename.to": "New path of the file.",
    "revert_actions.to": "Version that becomes the newest again.",
    "tokens": "Number of tokens of the message, if known.",
    "tool": "Name of the tool that was called.",
    "trial": "Number of the trial, from 0.",
    "ttl_s": "Seconds after which the key expires.",
    "uri": "Address of the resource.",
    "value": "The value, any JSON.",
    "version": "Version; omit it for the newest.",
    "waits_for": "Ids of tasks that must be completed first.",
    "waits_for_roles": "Roles whose tasks must all be completed first.",
    "what": "Details of the task, any JSON value.",
    "with": "Data that the next agent needs, any JSON value.",
    "workflow": "Name of the workflow.",
}
"""Descriptions by `tool.parameter`, or by the parameter where all tools mean the same."""

MESSAGE_ROLES = ("system", "developer", "user", "assistant", "tool")


def described(tool: str, takes: Mapping[str, Any]) -> dict[str, Any]:
    """Return a tool's input schema with a description of each parameter."""
    properties = {
        name: {"description": PARAMETERS.get(f"{tool}.{name}") or PARAMETERS.get(name, ""), **each}
        for name, each in takes["properties"].items()
    }
    if tool == "message":
        properties["role"]["enum"] = [*MESSAGE_ROLES]
    return {**takes, "properties": properties}
