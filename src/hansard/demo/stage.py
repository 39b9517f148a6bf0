"""What the demo says, and the claims it must hold before it says it."""

from __future__ import annotations

import sys
from typing import Any

import msgspec
from rich.console import Console
from rich.table import Table


class BrokenClaim(AssertionError):
    """What the demo was about to say is not so."""

    def __init__(self, claim: str, seen: dict[str, Any]) -> None:
        figures = ", ".join(f"{name}={value!r:.200}" for name, value in seen.items())
        super().__init__(f"not so: {claim}; seen: {figures}")
        self.claim = claim
        self.seen = seen


class Stage:
    """Says facts, one line each: as text, or as NDJSON with their figures and the claims behind."""

    def __init__(self, *, json: bool) -> None:
        self._json = json
        self._console = Console(highlight=False)
        self._held: list[str] = []
        self.claims = 0

    def scene(self, title: str) -> None:
        """A new part of the story; text only."""
        if not self._json:
            self._console.print(f"\n{title}", style="bold", markup=False, soft_wrap=True)

    def hold(self, claim: str, holds: bool, /, **seen: Any) -> None:  # noqa: FBT001 -- reads as assert
        """A claim that the next fact rests on. Raises BrokenClaim."""
        if not holds:
            raise BrokenClaim(claim, seen)
        self._held.append(claim)
        self.claims += 1

    def tell(self, fact: str, text: str, **figures: Any) -> None:
        """A fact, in one line."""
        held, self._held = self._held, []
        if self._json:
            self._write({"fact": fact, "text": text, **figures, "claims": held})
            return
        mark = "ok" if held else ""
        if not self._console.is_terminal:
            self._console.print(f"  {mark:2}  {text}", markup=False, soft_wrap=True)
            return
        line = Table.grid(padding=(0, 2))
        line.add_column(width=4, style="green", justify="right")
        line.add_column()
        line.add_row(mark, text.replace("[", r"\["))
        self._console.print(line)

    def command(self, command: str) -> None:
        """A command to try, on a line that can be copied."""
        if self._json:
            self._write({"fact": "try", "text": command, "command": command})
        else:
            self._console.print(f"        {command}", markup=False, soft_wrap=True)

    def fail(self, error: Exception) -> None:
        """The end, when something is not as it should be."""
        if self._json:
            claim = error.claim if isinstance(error, BrokenClaim) else ""
            kind = type(error).__name__
            self._write({"fact": "failed", "error": kind, "claim": claim, "text": str(error)})
            return
        Console(stderr=True, highlight=False).print(
            f"\nThe demo failed: {error}", style="bold red", markup=False, soft_wrap=True
        )

    def _write(self, line: dict[str, Any]) -> None:
        sys.stdout.buffer.write(msgspec.json.encode(line) + b"\n")
        sys.stdout.buffer.flush()
