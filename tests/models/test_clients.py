"""Real SDKs of model providers behind the proxy, in processes of their own."""

import asyncio
import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from hansard.ext.models.proxy import child_environment
from tests.models.house import House
from tests.models.provider import TEXT, Provider

PROGRAMS = Path(__file__).with_name("programs")

LEAN: tuple[str, ...] = (
    *("openai", "openai-async", "openai-aiohttp"),
    *("anthropic", "anthropic-async", "anthropic-aiohttp"),
    *("google", "google-async"),
)
LITELLM = (
    *("litellm-openai", "litellm-openai-async"),
    *("litellm-anthropic", "litellm-anthropic-async"),
)


async def child(house: House, program: str, *arguments: str, **values: str) -> str:
    """Run a program behind the proxy that serves; return what it printed."""
    environment = os.environ | child_environment(house.url)
    if "PYTHONPATH" in values:
        values["PYTHONPATH"] = os.pathsep.join((environment["PYTHONPATH"], values["PYTHONPATH"]))
    started = await asyncio.create_subprocess_exec(
        sys.executable,
        str(PROGRAMS / program),
        *arguments,
        env=environment | values,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    out, log = await started.communicate()
    assert started.returncode == 0, log.decode()[-3000:]
    return out.decode()


async def recorded_and_replayed(house: House, provider: Provider, *calls: str) -> dict[str, Any]:
    """Record calls of paths and replay them without the provider; return what they printed."""
    async with house.proxied():
        recorded = await child(house, "paths.py", *calls)
        counted = house.proxy.report.calls
    assert len(provider.calls) == counted > 0
    provider.stop()
    async with house.proxied("offline"):
        assert await child(house, "paths.py", *calls) == recorded
        assert house.proxy.report.from_record == house.proxy.report.calls == counted
    lines = [line for line in recorded.splitlines() if line.startswith("[")]
    return dict(json.loads(line) for line in lines if '"' in line)


def demand_outputs(outputs: dict[str, list[str]]) -> None:
    """Demand the whole text at once and then its pieces; an error where the provider breaks off."""
    for name, (whole, *pieces) in outputs.items():
        if name.endswith(":cut"):
            assert "".join([whole, *pieces]) != 2 * "".join(TEXT), name
        else:
            assert (whole, [each for each in pieces if each]) == ("".join(TEXT), TEXT), name


@pytest.mark.thorough(quick="models/test_edited.py::test_an_sdk_reads_an_edited_body")
@pytest.mark.parametrize("model", ["m", "gzip", "cut", "busy"])
async def test_all_paths_of_sdks_with_every_kind_of_answer(
    house: House, provider: Provider, model: str
):
    """The twelve paths, litellm's among them; those that break off have the same error."""
    paths = [*LEAN, *LITELLM]
    if model == "busy":  # those that repeat a request by themselves
        paths = [each for each in LEAN if not each.startswith("google")]
    outputs = await recorded_and_replayed(house, provider, *(f"{path}:{model}" for path in paths))
    demand_outputs(outputs)
    assert len(outputs) == len(paths)


QUICK = ("by_openai", "by_httpx", "by_aiohttp", "by_urllib")
AROUND = (*QUICK, "by_aiohttp_client", "by_anthropic", "by_google", "by_google_async")
_full = pytest.mark.thorough(quick="test_a_call_that_goes_around_the_proxy_is_refused")


@pytest.mark.parametrize(
    ("mode", "libraries"),
    [
        pytest.param(None, QUICK, marks=pytest.mark.slow),
        pytest.param(None, AROUND, marks=_full),
        pytest.param("offline", AROUND, marks=_full),
    ],
)
async def test_a_call_that_goes_around_the_proxy_is_refused(
    house: House, provider: Provider, tmp_path: Path, mode: str | None, libraries: tuple[str, ...]
):
    """By every library, when recording and in a replay; the user's own sitecustomize has run."""
    (tmp_path / "sitecustomize.py").write_text("import os; os.environ['USERS_SITE'] = 'ran'")
    async with house.proxied():
        pass
    async with house.proxied(mode):
        printed = await child(house, "around.py", *libraries, PYTHONPATH=str(tmp_path))
    result = json.loads(printed)
    assert result["users"] == "ran"
    assert result["errors"].keys() == set(libraries)
    for name, error in result["errors"].items():
        ours = "go around the recording" in error or name == "by_httpx"
        assert ours, (name, error)
    assert "422" in result["errors"]["by_httpx"]
    assert not provider.calls
