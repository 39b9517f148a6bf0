"""An agent of three model calls and one mail: it plans, sends the plan, and sums up as a stream."""

import contextlib
import os
import sys
from pathlib import Path

import openai

import hansard


@hansard.tool
def send_mail(text: str) -> int:
    """Append a mail to the outbox; return its number."""
    outbox = Path(os.environ["OUTBOX"])
    with outbox.open("a") as file:
        file.write(f"{text}\n")
    return len(outbox.read_text().splitlines())


def ask(model: str, prompt: str) -> str:
    """Ask a model, and return its streamed answer."""
    stream = openai.OpenAI(max_retries=0).chat.completions.create(
        model=model, messages=[{"role": "user", "content": prompt}], stream=True
    )
    return "".join(chunk.choices[0].delta.content or "" for chunk in stream if chunk.choices)


recording = hansard.record_http() if os.environ.get("IN_CODE") else contextlib.nullcontext()
with hansard.Session(), recording:
    plan = ask("m", "Plan the day")
    number = send_mail(plan)
    summary = ask(os.environ.get("MODEL", "stuck"), f"Sum up mail {number}")
sys.stdout.write(f"{plan} {number} {summary}\n")
