"""HTTP clients of Python programs: wrapped where they send a request, in this process or a child.

In a child of `hansard record` and `hansard replay`, calls name the step that makes them, and a call
to a known provider that does not go to the proxy is refused. This module is loaded there by its
path, in any interpreter: it imports the standard library alone.
"""

from __future__ import annotations

import contextlib
import importlib.abc
import importlib.machinery
import json
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any, Protocol
from urllib.parse import urlsplit

SITE = Path(__file__).with_name("site")
"""Folder with the `sitecustomize` of children."""

PROXY, HOSTS = "HANSARD_MODEL_PROXY", "HANSARD_MODEL_HOSTS"
"""Variables of a child: the proxy's URL, and the known providers by host as JSON."""

STEP_HEADER = "x-hansard-step"

CLIENTS = ("httpx", "httpx2", "aiohttp")

REFUSED = 422
"""Status of the answer to a call that went around the proxy."""


class Bypass(RuntimeError):
    """A call to a known provider would have gone around the proxy."""


class Hooks(Protocol):
    """Functions in place of the methods of the clients, which get these as their first argument."""

    def send(self, inner: Callable[..., Any], client: Any, request: Any, options: Any) -> Any:
        """Send a request of `httpx.Client` or `httpx2.Client`."""
        ...

    async def send_async(
        self, inner: Callable[..., Any], client: Any, request: Any, options: Any
    ) -> Any:
        """Send a request of `httpx.AsyncClient` or `httpx2.AsyncClient`."""
        ...

    async def request(
        self, inner: Callable[..., Any], client: Any, method: str, url: Any, options: Any
    ) -> Any:
        """Send a request of `aiohttp.ClientSession`."""
        ...


def wrap(module: ModuleType, hooks: Hooks) -> Callable[[], None]:
    """Wrap the clients of a module; return the function that undoes it."""
    if module.__name__ == "aiohttp":
        session = module.ClientSession
        inner = session._request  # noqa: SLF001 -- all of its methods end there

        async def request(self: Any, method: str, str_or_url: Any, **options: Any) -> Any:
            return await hooks.request(inner, self, method, str_or_url, options)

        session._request = request  # noqa: SLF001 -- it is put in its place
        return lambda: setattr(session, "_request", inner)
    inner_sync, inner_async = module.Client.send, module.AsyncClient.send

    def send(self: Any, request: Any, **options: Any) -> Any:
        return hooks.send(inner_sync, self, request, options)

    async def send_async(self: Any, request: Any, **options: Any) -> Any:
        return await hooks.send_async(inner_async, self, request, options)

    module.Client.send, module.AsyncClient.send = send, send_async

    def undo() -> None:
        module.Client.send, module.AsyncClient.send = inner_sync, inner_async

    return undo


class _Loader(importlib.abc.Loader):
    """Loader that calls a function with a module once it is loaded."""

    def __init__(self, loader: Any, then: Callable[[ModuleType], object]) -> None:
        self._loader = loader
        self._then = then

    def create_module(self, spec: Any) -> Any:
        return self._loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        self._loader.exec_module(module)
        self._then(module)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loader, name)


class OnImport(importlib.abc.MetaPathFinder):
    """Finder that calls a function with each of some modules when it is imported."""

    def __init__(self, names: Sequence[str], then: Callable[[ModuleType], object]) -> None:
        self._names = set(names)
        self._then = then

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        """Find a module by the other finders, and wrap its loader."""
        if name not in self._names:
            return None
        for finder in sys.meta_path:
            if finder is self or not hasattr(finder, "find_spec"):
                continue
            spec = finder.find_spec(name, path, target)
            if spec is not None:
                if spec.loader is not None:
                    spec.loader = _Loader(spec.loader, self._then)
                return spec
        return None


def on_clients(then: Callable[[ModuleType], object]) -> OnImport:
    """Call a function with each client's module, now or once it is imported; return the finder."""
    loaded = [sys.modules[name] for name in CLIENTS if name in sys.modules]
    for module in loaded:
        then(module)
    finder = OnImport([name for name in CLIENTS if name not in sys.modules], then)
    sys.meta_path.insert(0, finder)
    return finder


class Guard:
    """Hooks of a child: they name the step of a call, and refuse one that bypasses the proxy."""

    def __init__(self, proxy: str, hosts: Mapping[str, str]) -> None:
        self._proxy = proxy
        self._hosts = hosts

    def provider_of(self, host: str) -> str:
        """Return the known provider that a host belongs to; empty for none."""
        host = host.lower().rstrip(".")
        for known, provider in self._hosts.items():
            if host.endswith(known) if known.startswith(".") else host == known:
                return provider
        return ""

    def refusal(self, host: str, call: str) -> str:
        """Return why a call is refused; empty if it is not."""
        provider = self.provider_of(host)
        if not provider:
            return ""
        why = (
            f"hansard refused {call}: it would go around the recording. Let the client of "
            f"{provider} take its base URL from the environment instead of an argument"
        )
        with contextlib.suppress(OSError, ValueError):
            sys.stderr.write(f"{why}\n")
        return why

    def send(self, inner: Callable[..., Any], client: Any, request: Any, options: Any) -> Any:
        """Send a request, or refuse it by a response."""
        refused = self._prepare(client, request)
        return inner(client, request, **options) if refused is None else refused

    async def send_async(
        self, inner: Callable[..., Any], client: Any, request: Any, options: Any
    ) -> Any:
        """Send a request, or refuse it by a response."""
        refused = self._prepare(client, request)
        return await inner(client, request, **options) if refused is None else refused

    def _prepare(self, client: Any, request: Any) -> Any:
        url = str(request.url)
        why = self.refusal(request.url.host, f"{request.method} {url.partition('?')[0]}")
        if not why:
            if url.startswith(self._proxy) and (step := current_step()):
                request.headers[STEP_HEADER] = step
            return None
        package = importlib.import_module(type(request).__module__.partition(".")[0])
        content = json.dumps({"error": {"message": why, "type": "hansard", "code": REFUSED}})
        headers = {"content-type": "application/json", "x-should-retry": "false"}
        del client
        return package.Response(REFUSED, headers=headers, content=content, request=request)

    async def request(
        self, inner: Callable[..., Any], client: Any, method: str, url: Any, options: Any
    ) -> Any:
        """Send a request of aiohttp. Raises Bypass."""
        whole = str(client._build_url(url))  # noqa: SLF001 -- it adds the session's base URL
        why = self.refusal(urlsplit(whole).hostname or "", f"{method} {whole.partition('?')[0]}")
        if why:
            raise Bypass(why)
        if whole.startswith(self._proxy) and (step := current_step()):
            options["headers"] = {**(options.get("headers") or {}), STEP_HEADER: step}
        return await inner(client, method, url, **options)

    def audit(self, event: str, arguments: tuple[Any, ...]) -> None:
        """Refuse to look up a provider's address, whichever library does. Raises Bypass."""
        if event != "socket.getaddrinfo":
            return
        host = arguments[0]
        host = host.decode("ascii", "replace") if isinstance(host, bytes) else host
        if isinstance(host, str) and (why := self.refusal(host, f"a connection to {host}")):
            raise Bypass(why)


def current_step() -> str:
    """Return the address of the step that this code runs in: `RUN/AGENT#STEP`; empty for none."""
    scopes = sys.modules.get("hansard.agents.steps.scope")
    current = scopes._current.get() if scopes is not None else ()  # noqa: SLF001 -- read if it is there
    if not current:
        return ""
    stream = current[0].session.stream
    step = current[0].step
    return f"{stream.run}/{stream.agent}" + (f"#{step}" if step is not None else "")


def guard() -> None:
    """Guard this process, if it is a child of `hansard record` or `hansard replay`."""
    proxy = os.environ.get(PROXY)
    if not proxy:
        return
    hooks = Guard(proxy, json.loads(os.environ.get(HOSTS, "{}")))
    on_clients(lambda module: wrap(module, hooks))
    sys.addaudithook(hooks.audit)
