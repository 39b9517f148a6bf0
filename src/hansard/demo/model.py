"""The one place where the demo may ask a model: any server that speaks OpenAI's chat form."""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Mapping

import msgspec

BASE_URL = "https://api.openai.com/v1"
MODEL = "gpt-4.1-mini"

ANSWER_S = 60.0
"""How long an answer may take before the rule writes the summary instead."""


class NoAnswer(ValueError):
    """The model's server gave something else than an answer."""


class Model(msgspec.Struct, frozen=True):
    """Where a model is asked, and its name. The key is no argument of any recorded call."""

    url: str
    name: str
    key: str

    def ask(self, name: str, messages: list[dict[str, str]]) -> tuple[str, dict[str, float]]:
        """A model's answer to some messages, on one line, and the tokens it took.

        Raises OSError, NoAnswer.
        """
        request = urllib.request.Request(  # noqa: S310 -- the user's own setting names the server
            f"{self.url}/chat/completions",
            data=json.dumps({"model": name, "messages": messages}).encode(),
            headers={"Authorization": f"Bearer {self.key}", "Content-Type": "application/json"},
        )
        with urllib.request.urlopen(request, timeout=ANSWER_S) as response:  # noqa: S310 -- the same setting
            body = response.read()
        try:
            answer = json.loads(body)
            text = " ".join(answer["choices"][0]["message"]["content"].split())
            told = answer.get("usage") or {}
            usage = {
                "input_tokens": float(told.get("prompt_tokens", 0)),
                "output_tokens": float(told.get("completion_tokens", 0)),
            }
        except (ValueError, LookupError, TypeError, AttributeError) as error:
            message = f"{self.url} gave no chat completion ({error!r}): {body[:200]!r}"
            raise NoAnswer(message) from error
        return text, usage


def from_environment(environment: Mapping[str, str]) -> Model | None:
    """The model that OPENAI_BASE_URL, OPENAI_API_KEY and OPENAI_MODEL name; None without one."""
    url, key = environment.get("OPENAI_BASE_URL"), environment.get("OPENAI_API_KEY")
    if not url and not key:
        return None
    name = environment.get("OPENAI_MODEL") or MODEL
    return Model((url or BASE_URL).rstrip("/"), name, key or "")
