"""Command `hansard calibrate`: fields of requests that differ between two starts of a program."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

from hansard.cli import output
from hansard.cli.common import Command, Commands, option
from hansard.cli.record import (
    AGENT,
    AgentName,
    RulesFile,
    Volatile,
    demand,
    fields_of,
    program_of,
    run_proxied,
)
from hansard.domain.choices import counted

app = Commands()


@app.command(plain=True)
async def calibrate(
    write: Annotated[
        Path | None, option("Write the proposed rules to this file, for --rules.", "FILE")
    ] = None,
    agent: AgentName = AGENT,
    volatile: Volatile = None,
    rules: RulesFile = None,
    command: Command = None,
) -> int:
    """Propose which fields of a program's requests are volatile.

    The program is run twice. The first start is recorded as by 'hansard record', and calls its
    providers. The second one gets the answers of the first, whatever it asks. Fields that differ
    are proposed as rules, which 'hansard record' and 'hansard replay' apply with --rules or
    --volatile, and nothing applies unasked. Exits with the program's code, and with 1 if a request
    differed.
    """
    from hansard.ext.models.calibration import PairingProxy, proposals

    demand(command)
    assert command is not None  # noqa: S101 -- demanded
    fields = fields_of(volatile, rules)
    name = program_of(command)
    options: dict[str, Any] = {"run": None, "program": name}
    first = await run_proxied(name, agent, options, command, volatile=fields)
    if first.code:
        output.hint(f"the first start ended with exit code {first.code}: nothing is compared")
        return first.code
    options = {"run": first.run, "mode": "offline"}
    second = await run_proxied(None, agent, options, command, volatile=fields, pairing=True)
    proxy = second.proxy
    assert isinstance(proxy, PairingProxy)  # noqa: S101 -- as requested
    proposed = proposals(proxy.pairs)
    text = "\n".join(_as_rules(proposed, first.run))
    if write is not None:
        write.write_text(text + "\n", encoding="utf-8")
        output.hint(f"{counted(len(proposed), 'rule')} written to {write}")
    else:
        output.write(text)
    if proxy.unpaired:
        output.hint(f"{counted(len(proxy.unpaired), 'request')} of the second start had no answer")
    if proxy.left:
        output.hint(f"{counted(proxy.left, 'request')} of the first start was not made again")
    return second.code or (1 if proposed or proxy.unpaired or proxy.left else 0)


def _as_rules(proposed: list[Any], run: str) -> Iterator[str]:
    """Yield the lines of a file of rules; one that would hide a text is a comment."""
    if not proposed:
        yield f"# no field differed between run {run} and a second start"
    for each in proposed:
        yield f"# in {counted(each.calls, 'call')}{f': {each.looks}' if each.looks else ''}"
        yield f"#   first:  {each.first}"
        yield f"#   second: {each.second}"
        if not each.looks:
            yield "# its form is unknown: a rule would hide every change of this field from replay"
        yield each.rule if each.looks else f"# {each.rule}"
