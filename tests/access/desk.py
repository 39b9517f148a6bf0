"""A folder with a workspace in it, and the command line there."""

import asyncio
import json
import os
import shlex
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import msgspec
import pytest

import hansard
from hansard import settings as configuration
from hansard.agents.access.principals import AccessDenied, Authenticator
from hansard.broker.access import Credentials
from hansard.broker.lease import Lease, join
from hansard.client.credentials import CredentialsRequest, make
from hansard.domain.errors import HansardError
from tests.access.support import ROLES, called, let_in
from tests.faults._warm import run

PROGRAM = Path(__file__).parent / "programs" / "killed.py"
HANSARD = ["-m", "hansard"]


class Desk:
    """A folder with a workspace in it, and the command line there."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.data_dir = folder / "data"
        self.file = folder / "ada.json"
        (folder / "roles.toml").write_text(ROLES)
        self.lease: Lease = join(self.data_dir)
        self.work("roles", "apply", folder / "roles.toml")

    def run(self, command: list[str], line: str) -> subprocess.CompletedProcess[str]:
        """Run a program of Python with arguments, in the folder."""
        settings = ["--workspace", "lab", "--data-dir", str(self.data_dir)]
        words = [*command, *shlex.split(line), *settings]
        return run(words, cwd=self.folder, env=os.environ, timeout=170)

    def call(self, line: str) -> list[dict[str, Any]]:
        """Run a command that succeeds, and return the objects that it prints."""
        done = self.run(HANSARD, f"{line} --json")
        assert done.returncode == 0, done.stderr
        return [json.loads(each) for each in done.stdout.splitlines()]

    def refused(self, role: str = "writer", name: str = "ada", **more: Any) -> str:
        """Return the refusal that `make` raises."""
        with pytest.raises(HansardError) as caught:
            self.make(role, name, **more)
        return str(caught.value)

    def work(self, *given: object) -> list[dict[str, Any]]:
        """Run a command in this process and return the objects that it prints."""
        return called("--workspace", "lab", "--data-dir", self.data_dir, *given)

    def make(self, role: str = "writer", name: str = "ada", **more: Any) -> dict[str, Any]:
        """`hansard credentials ROLE --name NAME --output NAME.json`."""
        place = self.folder / more.pop("output", f"{name}.json")
        settings = configuration.load(workspace="lab", data_dir=self.data_dir)
        doing = make(settings, CredentialsRequest(role=role, name=name, output=place, **more))
        with ThreadPoolExecutor(1) as thread:  # it has a loop of its own
            made = thread.submit(asyncio.run, doing).result()
        fields: dict[str, Any] = json.loads(msgspec.json.encode(made))
        return fields

    def listed(self) -> list[dict[str, Any]]:
        """`hansard principals`."""
        return self.work("principals")

    def register(self, name: str, kind: str = "person") -> None:
        """`hansard principals register NAME --kind KIND`."""
        self.work("principals", "register", name, "--kind", kind)

    def revoke(self, which: str) -> list[dict[str, Any]]:
        """`hansard principals revoke WHICH --reason lost`."""
        return self.work("principals", "revoke", which, "--reason", "lost")

    def opens(self, credentials: Credentials) -> bool:
        """Return whether the broker admits the holder."""
        return let_in(credentials)

    async def admits(self, credentials: Credentials) -> bool:
        """Return whether the service would admit the holder."""
        async with (
            hansard.connect_async("lab", data_dir=self.data_dir) as record,
            await Authenticator.open(record.workspace) as keeper,
        ):
            try:
                return (
                    keeper.check(credentials.token, credentials.principal, credentials.role)
                    is not None
                )
            except AccessDenied:
                return False

    def valid(self) -> list[str]:
        """Return the ids of the valid tokens."""
        return [each["token"] for each in self.listed() if each["standing"] == "valid"]
