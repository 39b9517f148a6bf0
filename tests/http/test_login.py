"""Login over HTTP: links, sessions, CSRF, the policy of the page, tokens, and a signing proxy."""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import os
import re
import ssl
import subprocess
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Self
from urllib.parse import parse_qs, urlsplit
from uuid import uuid4

import httpx2
import msgspec
import pytest

import hansard
from hansard import settings
from hansard.agents.access import principals
from hansard.broker import access
from hansard.client import listening as listener
from hansard.client.credentials import CredentialsRequest, make
from hansard.client.listening import Address
from hansard.client.opening import find_broker
from hansard.domain.errors import BadValue
from hansard.domain.roles import check
from hansard.service.http import identity, logins
from hansard.service.http.app import listening
from hansard.service.http.identity import Claims, signed
from hansard.service.http.logins import Grant, Logins
from tests.access.support import called
from tests.http.conftest import OPERATOR, TOKEN, Lab

pytestmark = pytest.mark.later

ROLES = """
[roles.reader]
sees = [{ name = "messages", kinds = ["message.*"] }]
may = { query = true }
"""
KEY = b"k" * 32


class Browser:
    """A browser without a login: a client of the listener with a cookie jar."""

    def __init__(self, lab: Lab) -> None:
        self.http = httpx2.AsyncClient(base_url=lab.http.base_url, timeout=30)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.http.aclose()

    async def log_in(self, code: str, **form: str) -> httpx2.Response:
        """Send the form of a link."""
        return await self.http.post("/login", data={"code": code} | form)

    async def me(self) -> dict[str, Any]:
        """Return the caller as the service sees it."""
        answer = await self.http.get("/api/v1/me")
        assert answer.status_code == 200, answer.text
        return dict(answer.json())


@pytest.fixture
async def browser(lab: Lab) -> AsyncIterator[Browser]:
    """Yield a browser."""
    async with Browser(lab) as made:
        yield made


async def code_of(lab: Lab, token: str = TOKEN, path: str = "") -> str:
    """Return the code of a new link."""
    headers = {"authorization": f"Bearer {token}"}
    answer = await lab.http.post(lab.at("/logins"), json={"next": path}, headers=headers)
    assert answer.status_code == 200, answer.text
    return str(answer.json()["code"])


async def reader(lab: Lab, folder: Path, name: str = "ada", **more: Any) -> access.Credentials:
    """Return credentials of a principal in the role `reader`."""
    await apply(lab)
    config = settings.load(workspace=lab.name, data_dir=lab.folder)
    place = more.pop("output", folder / f"{uuid4().hex}.json")
    await make(config, CredentialsRequest(role="reader", name=name, output=place, **more))
    return access.load(place)


async def apply(lab: Lab) -> None:
    """Define the role of these tests."""
    for name, rules in check.parse(ROLES).items():
        await lab.record.roles.apply(name, rules)


async def test_a_link_logs_in_once(lab: Lab, browser: Browser):
    """A preview of the link uses nothing up; the form begins a session, and only once."""
    code = await code_of(lab)
    for _ in range(2):
        preview = await browser.http.get(f"/login?code={code}&next=/ws/{lab.name}")
        assert (preview.status_code, f'value="{code}"' in preview.text) == (200, True)
        assert "set-cookie" not in preview.headers
    begun = await browser.log_in(code, next=f"/ws/{lab.name}")
    assert (begun.status_code, begun.headers["location"]) == (303, f"/ws/{lab.name}")
    cookie = begun.headers["set-cookie"]
    port = browser.http.base_url.port
    assert re.fullmatch(
        rf"hansard-{port}=[A-Za-z0-9_-]{{43}}; Path=/; HttpOnly; SameSite=Lax", cookie
    )
    me = await browser.me()
    assert (me["operator"], me["principal"], lab.name in me["workspaces"]) == (True, None, True)
    async with Browser(lab) as other:
        again = await other.log_in(code)
        assert (again.status_code, "hansard login" in again.text) == (403, True)
        assert (await other.http.get("/api/v1/me")).status_code == 401


async def test_of_many_requests_with_one_link_one_logs_in(lab: Lab):
    """The code is used up by one of them."""
    code = await code_of(lab)
    async with Browser(lab) as browser:
        forms = await asyncio.gather(*(browser.log_in(code) for _ in range(20)))
    assert sorted(form.status_code for form in forms) == [303] + [403] * 19


async def test_a_link_expires(lab: Lab, browser: Browser, monkeypatch: pytest.MonkeyPatch):
    """A link that is too old is as unknown as a wrong one; both leave no file behind."""
    code = await code_of(lab)
    later = time.time() + logins.LINK_S
    monkeypatch.setattr(time, "time", lambda: later)
    for each in (code, "x", ""):
        assert (await browser.log_in(each)).status_code == 403
    Logins(lab.folder).link(Grant())
    assert len([*(lab.folder / "http" / "links").iterdir()]) == 1


async def test_a_login_takes_no_session_of_the_client(lab: Lab, browser: Browser):
    """A cookie that was planted before the login is worth nothing after it (fixation)."""
    await browser.log_in(await code_of(lab))
    [name], [planted] = browser.http.cookies.keys(), browser.http.cookies.values()
    async with Browser(lab) as victim:
        victim.http.cookies.set(name, planted)
        begun = await victim.log_in(await code_of(lab))
        assert planted not in begun.headers["set-cookie"]
    assert (await browser.http.get("/api/v1/me")).status_code == 401
    async with Browser(lab) as victim:
        victim.http.cookies.set(name, "chosen-by-another")
        assert "chosen" not in (await victim.log_in(await code_of(lab))).headers["set-cookie"]


async def test_a_copied_cookie_ends_with_its_session(lab: Lab, browser: Browser):
    """After the logout, after `hansard logout`, and after 12 h idle the cookie is worth nothing."""

    async def log_in() -> str:
        await browser.log_in(await code_of(lab))
        [value] = browser.http.cookies.values()
        return str(value)

    async def status(copy: str) -> int:
        async with Browser(lab) as thief:
            cookie = {"cookie": f"hansard-{browser.http.base_url.port}={copy}"}
            return (await thief.http.get("/api/v1/me", headers=cookie)).status_code

    copy = await log_in()
    assert await status(copy) == 200
    csrf = {"hansard-csrf": (await browser.me())["csrf"]}
    left = await browser.http.post("/logout", headers=csrf)
    assert (left.status_code, "Max-Age=0" in left.headers["set-cookie"]) == (200, True)
    assert await status(copy) == 401
    copy = await log_in()
    shown = await browser.http.get("/logout")
    token = re.search(r'name="csrf" value="([0-9a-f]{64})"', shown.text)
    assert token is not None
    left = await browser.http.post("/logout", data={"csrf": token[1]})
    assert (left.status_code, await status(copy)) == (200, 401)
    copy = await log_in()
    assert Logins(lab.folder).end_all() >= 1
    assert await status(copy) == 401
    copy = await log_in()
    for path in (lab.folder / "http" / "sessions").iterdir():
        os.utime(path, (0, time.time() - logins.IDLE_S - 1))
    assert await status(copy) == 401
    assert copy not in " ".join(path.name for path in lab.folder.rglob("*"))


async def test_a_change_by_cookie_needs_the_token_and_the_own_page(lab: Lab, browser: Browser):
    """Other sites, other ports of this machine, and requests without the token are refused."""
    await browser.log_in(await code_of(lab))
    csrf = (await browser.me())["csrf"]
    own = str(browser.http.base_url).rstrip("/")
    refused: list[dict[str, str]] = [
        {},
        {"hansard-csrf": ""},
        {"hansard-csrf": "0" * 64},
        {"hansard-csrf": csrf, "origin": "http://127.0.0.1:1"},
        {"hansard-csrf": csrf, "origin": "http://evil.example"},
        {"hansard-csrf": csrf, "origin": "null"},
        {"hansard-csrf": csrf, "sec-fetch-site": "cross-site", "sec-fetch-mode": "no-cors"},
        {"hansard-csrf": csrf, "sec-fetch-site": "same-site", "sec-fetch-mode": "cors"},
    ]
    for headers in refused:
        assert (await browser.http.post("/logout", headers=headers)).status_code == 403, headers
    page = {"sec-fetch-site": "same-site", "sec-fetch-mode": "no-cors"}
    assert (await browser.http.get("/api/v1/me", headers=page)).status_code == 403
    good = {"hansard-csrf": csrf, "origin": own, "sec-fetch-site": "same-origin"}
    assert (await browser.http.post("/logout", headers=good)).status_code == 200
    code = await code_of(lab)
    forged = await browser.http.post("/login", data={"code": code}, headers={"origin": f"{own}1"})
    assert forged.status_code == 403
    assert (await browser.log_in(code)).status_code == 303


@pytest.mark.parametrize(
    "path",
    [
        *("//evil.example", "https://evil.example", "/\\evil.example", "\\\\evil.example"),
        *(
            "javascript:alert(1)",
            "/ws/\r\nSet-Cookie: a=b",
            "evil",
            "/ws/ünicode",
            "/" + "a" * 3_000,
        ),
    ],
)
async def test_a_login_leads_to_no_other_site(lab: Lab, browser: Browser, path: str):
    """Only a path of this server is followed."""
    code = await code_of(lab)
    answer = await browser.http.get("/login", params={"code": code, "next": path})
    assert answer.status_code == 400
    answer = await browser.log_in(code, next=path)
    assert (answer.status_code, answer.headers.get("location")) == (400, None)


async def test_a_page_of_a_link_shows_what_it_gets_as_text(browser: Browser):
    """Values of the address are escaped, and the policy lets no code in the page run."""
    answer = await browser.http.get("/login", params={"code": '"><script>alert(1)</script>'})
    assert "<script" not in answer.text


async def test_every_answer_has_the_policy(lab: Lab, browser: Browser):
    """Pages, files, data, refusals and errors."""
    await browser.log_in(await code_of(lab))
    main = re.search(r'src="(/static/[^"]+)"', (await browser.http.get("/")).text)
    assert main is not None
    for path, status in (
        ("/", 200),
        (f"/ws/{lab.name}/runs", 200),
        (main[1], 200),
        ("/static/../../service/http/app.py", 404),
        ("/static/none.js", 404),
        ("/login", 200),
        ("/static/login.css", 200),
        ("/api/v1/me", 200),
        (lab.at("/me"), 200),
        ("/api/v1/none/me", 404),
        ("/none", 404),
    ):
        answer = await browser.http.get(path)
        assert answer.status_code == status, (path, answer.text)
        policy = answer.headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy
        for name in ("x-content-type-options", "x-frame-options", "referrer-policy"):
            assert name in answer.headers, path
    foreign = await browser.http.get("/", headers={"host": "evil.example"})
    assert (foreign.status_code, "content-security-policy" in foreign.headers) == (421, True)


async def test_files_are_kept_by_the_browser(lab: Lab, browser: Browser):
    """Files named by their content are kept for good, others are compared; both are compressed."""
    assert (await browser.http.get("/")).status_code == 401
    await browser.log_in(await code_of(lab))
    page = await browser.http.get("/ws/any/runs/of?at=1")
    assert (page.headers["content-type"], page.headers["cache-control"]) == (
        "text/html; charset=utf-8",
        "no-cache",
    )
    same = {"if-none-match": page.headers["etag"]}
    assert (await browser.http.get("/", headers=same)).status_code == 304
    [name] = re.findall(r'src="(/static/[^"]+)"', page.text)
    file = await browser.http.get(name)
    assert "immutable" in file.headers["cache-control"]
    assert file.headers["content-encoding"] == "gzip"
    plain = await browser.http.get(name, headers={"accept-encoding": "identity"})
    assert plain.content == file.content
    assert plain.headers["etag"] != file.headers["etag"]


async def test_a_principal_sees_its_own_workspace_only(lab: Lab, browser: Browser, tmp_path: Path):
    """Another workspace and an absent one have one answer."""
    ada = await reader(lab, tmp_path)
    await browser.log_in(await code_of(lab, ada.token))
    me = await browser.me()
    assert (me["operator"], me["principal"], me["role"]) == (False, "ada", "reader")
    assert me["workspaces"] == [lab.name]
    assert (await browser.http.get(lab.at("/me"))).json()["role"] == "reader"
    name = f"other-{uuid4().hex[:12]}"
    async with hansard.connect_async(name, data_dir=lab.folder):
        pass
    hidden = await browser.http.get(f"/api/v1/{name}/me")
    absent = await browser.http.get("/api/v1/none/me")
    assert hidden.status_code == absent.status_code == 404
    assert hidden.text.replace(name, "none") == absent.text
    for path in (f"/api/v1/{name}/me", "/api/v1/none/me"):
        headers = {"authorization": f"Bearer {ada.token}"}
        answer = await browser.http.get(path, headers=headers)
        assert answer.status_code == 401
    direct = {"hansard-csrf": me["csrf"]}
    copied = await browser.http.post(lab.at("/logins"), json={}, headers=direct)
    assert copied.status_code == 403


async def test_a_session_ends_with_its_token(lab: Lab, tmp_path: Path):
    """Revoked, expired: refused within a second, for the token and for the cookie."""
    for name, expires in (("ada", "never"), ("bob", "3s")):
        made = await reader(lab, tmp_path, name, expires=expires)
        token = {"authorization": f"Bearer {made.token}"}
        async with Browser(lab) as browser:
            await browser.log_in(await code_of(lab, made.token))
            assert (await browser.me())["principal"] == name
            if expires == "never":
                await principals.revoke_all(lab.record.workspace, name)
                await asyncio.sleep(0.5)
            else:
                await asyncio.sleep(3)
            assert (await browser.http.get("/api/v1/me")).status_code == 401
            assert (await browser.http.get(lab.at("/me"), headers=token)).status_code == 401


@pytest.mark.parametrize("end", ["revoke", "log out", "withdraw the role"])
async def test_streams_end_with_the_access(lab: Lab, tmp_path: Path, end: str):
    """Within a second after the access has ended; those of others go on."""
    ada = await reader(lab, tmp_path)
    async with contextlib.AsyncExitStack() as stack:
        browser = await stack.enter_async_context(Browser(lab))
        await browser.log_in(await code_of(lab, ada.token))
        csrf = {"hansard-csrf": (await browser.me())["csrf"]}
        ends, goes_on = [
            await stack.enter_async_context(http.stream("GET", lab.at("/live"), timeout=20))
            for http in (browser.http, lab.http)
        ]
        parts = [each.aiter_text() for each in (ends, goes_on)]
        for each in parts:
            while "event: open" not in await anext(each):
                pass
        began_s = time.monotonic()
        if end == "revoke":
            await principals.revoke_all(lab.record.workspace, "ada")
        elif end == "log out":
            assert (await browser.http.post("/logout", headers=csrf)).status_code == 200
        else:
            await lab.record.roles.withdraw("reader")
        async for _ in parts[0]:
            pass
        assert time.monotonic() - began_s < 1
        assert (await browser.http.get("/api/v1/me")).status_code == 401
        async with lab.record.run("work", agent="a", role="worker"):
            assert "event: runs" in await anext(parts[1])


async def test_streams_of_one_caller_are_limited(lab: Lab, monkeypatch: pytest.MonkeyPatch):
    """One more is refused."""
    monkeypatch.setattr(identity, "STREAMS_MAX", 2)
    async with contextlib.AsyncExitStack() as stack:
        for _ in range(2):
            open_ = await stack.enter_async_context(lab.http.stream("GET", lab.at("/live")))
            assert open_.status_code == 200
        assert (await lab.http.get(lab.at("/live"))).status_code == 429
    await asyncio.sleep(0.1)
    async with lab.http.stream("GET", lab.at("/live")) as again:
        assert again.status_code == 200


async def test_a_refused_token_is_on_record(lab: Lab, tmp_path: Path):
    """The answer gives no reason; the record does."""
    ada = await reader(lab, tmp_path)
    wrong = ada.token[:-1] + ("a" if ada.token[-1] != "a" else "b")
    for token in (wrong, "hsd_nothing", "x"):
        answer = await lab.http.get(lab.at("/me"), headers={"authorization": f"Bearer {token}"})
        assert (answer.status_code, answer.headers["www-authenticate"]) == (401, "Bearer")
        assert "secret" not in answer.text
    statement = "SELECT data FROM events WHERE type = 'access.refused.v1'"
    reasons = [
        msgspec.json.decode(row[0])["because"] for row in (await lab.record.sql(statement)).rows
    ]
    assert "the token's secret is another one" in reasons


async def test_sessions_and_links_are_limited(lab: Lab, monkeypatch: pytest.MonkeyPatch):
    """One more ends the session that was used longest ago; damaged files are removed."""
    monkeypatch.setattr(logins, "SESSIONS_OF_ONE_MAX", 3)
    monkeypatch.setattr(logins, "LINKS_MAX", 3)
    files = Logins(lab.folder)
    files.begin(Grant())  # it makes the folder
    files.end_all()
    (lab.folder / "http" / "sessions" / "0bad").write_bytes(b"{")
    secrets = []
    for number in range(4):
        secrets.append(files.begin(Grant()))
        path = lab.folder / "http" / "sessions" / logins._name(secrets[-1])
        os.utime(path, (0, time.time() - 10 + number))
    assert [files.session(each) is not None for each in secrets] == [False, True, True, True]
    other = files.begin(Grant(principal="ada", workspace="w", token="t"))
    session = files.session(secrets[1])
    assert session is not None
    assert session.owner == ("", "")
    assert files.session(other) is not None
    codes = [files.link(Grant()) for _ in range(4)]
    assert sum(files.redeem(each) is not None for each in codes) == 3
    for path in (lab.folder / "http").rglob("*"):
        assert path.stat().st_mode & 0o077 == 0, path


@contextlib.asynccontextmanager
async def proxied(lab: Lab) -> AsyncIterator[httpx2.AsyncClient]:
    """Yield a client of a listener behind a proxy."""
    config = settings.load(workspace=lab.name, data_dir=lab.folder)
    broker = await find_broker(config)
    try:
        served = listening(config, broker, Address("127.0.0.1", 0), proxy_key=KEY)
        async with served as url, httpx2.AsyncClient(base_url=url, timeout=30) as http:
            yield http
    finally:
        await broker.release()


async def test_a_proxy_names_the_user(lab: Lab, tmp_path: Path):
    """A signed header names a principal that holds a token of the role; others are refused."""
    await reader(lab, tmp_path)
    now_s = time.time()
    good = Claims(
        aud="hansard", iat=now_s, exp=now_s + 60, sub="ada", role="reader", workspace=lab.name
    )

    def but(**fields: Any) -> str:
        return signed(KEY, msgspec.structs.replace(good, **fields))

    head, payload, signature = signed(KEY, good).split(".")
    none = identity._base64(b'{"alg":"none"}').decode()
    refused = {
        "wrong key": signed(b"x" * 32, good),
        "no signature": f"{none}.{payload}.",
        "signed, but none": _signed_text(f"{none}.{payload}"),
        "other payload": f"{head}.{identity._base64(b'{}').decode()}.{signature}",
        "expired": but(iat=now_s - 100, exp=now_s - 1),
        "not yet": but(iat=now_s + 100, exp=now_s + 150),
        "too long": but(exp=now_s + 301),
        "other principal": but(sub="eve"),
        "other role": but(role="boss"),
        "no role": but(role=""),
        "operator and principal": but(operator=True),
        "no token": "x",
        "empty": "",
        "not ASCII": "é.é.é",
    }
    async with proxied(lab) as http:

        async def get(header: str, path: str = lab.at("/me"), **more: str) -> httpx2.Response:
            sent = [(b"hansard-identity", header.encode())]
            sent += [(name.encode(), text.encode()) for name, text in more.items()]
            return await http.get(path, headers=sent)

        answer = await get(but())
        assert (answer.status_code, answer.json()["principal"]) == (200, "ada")
        assert "max-age" in answer.headers["strict-transport-security"]
        for case, header in refused.items():
            more = OPERATOR if case == "wrong key" else {}
            assert (await get(header, **more)).status_code == 401, case
        assert (await get(but(), "/api/v1/none/me")).status_code == 404
        operator = but(sub="", role="", workspace="", operator=True)
        assert (await get(operator)).json()["operator"] is True
        csrf = answer.json()["csrf"]
        named = {"hansard-identity": but()}
        assert (await http.post("/logout", headers=named)).status_code == 403
        left = await http.post("/logout", headers=named | {"hansard-csrf": csrf})
        assert left.status_code == 200
        traces = await http.post("/v1/traces", json={})  # the proxy's requests are all local
        assert traces.status_code == 401
        await principals.revoke_all(lab.record.workspace, "ada")
        await asyncio.sleep(0.5)
        assert (await get(but())).status_code == 401
    async with proxied(lab) as http:
        assert (await http.get("/", headers={"cookie": "hansard-1=x"})).status_code == 401
    plain = await lab.http.get(lab.at("/me"), headers={"hansard-identity": operator})
    assert plain.json()["way"] == "token"  # without --behind-proxy the header is ignored


def _signed_text(text: str) -> str:
    return f"{text}.{identity._base64(hmac.digest(KEY, text.encode(), 'sha256')).decode()}"


async def test_the_commands_log_in_and_out(lab: Lab, browser: Browser, tmp_path: Path):
    """`hansard login` finds the service by its data directory; `logout` ends its sessions."""
    file = tmp_path / "ada.json"
    await reader(lab, tmp_path, output=file)
    place = ("--data-dir", lab.folder, "--workspace", lab.name)
    url = str(lab.http.base_url).rstrip("/")
    for arguments, name in (((), None), (("--credentials", file), "ada")):
        more = (*arguments, "--url", url, "--next", f"/ws/{lab.name}?at=3&view=x")
        [link] = await asyncio.to_thread(called, *place, "login", *more)
        parts = urlsplit(link["url"])
        assert f"{parts.scheme}://{parts.netloc}" == url
        query = {key: values[0] for key, values in parse_qs(parts.query).items()}
        begun = await browser.log_in(query["code"], next=query["next"])
        assert begun.headers["location"] == f"/ws/{lab.name}?at=3&view=x"
        assert (await browser.me())["principal"] == name
    own = {"authorization": f"Bearer {msgspec.json.decode(file.read_bytes())['token']}"}
    strange = await browser.http.get("/api/v1/me", headers=own)
    assert (strange.status_code, "its own workspace" in strange.json()["remedy"]) == (401, True)
    assert (await browser.http.get(lab.at("/me"), headers=own)).status_code == 200
    assert url in {each.url for each in logins.listeners(lab.folder)}
    await principals.revoke_all(lab.record.workspace, "ada")
    with pytest.raises(BadValue, match="no valid login"):
        await asyncio.to_thread(called, *place, "login", "--credentials", file, "--url", url)
    [made] = await asyncio.to_thread(called, *place, "login", "--token", "--url", url)
    bearer = {"authorization": f"Bearer {made['token']}"}
    with pytest.raises(BadValue, match="--token"):
        await asyncio.to_thread(called, *place, "login", "--token", "--credentials", file)
    addresses = ("/api/v1/me", lab.at("/runs"))
    for status in (200, 401):
        for address in addresses:
            answer = await browser.http.get(address, headers=bearer)
            assert answer.status_code == status, address
        mcp = await browser.http.post(made["mcp"], json={}, headers=bearer)
        assert (mcp.status_code == 401) == (status == 401)
        [ended] = await asyncio.to_thread(called, *place, "logout")
        assert (ended["ended"] >= 1) == (status == 200)
    assert (await browser.http.get("/api/v1/me")).status_code == 401


@pytest.fixture
def certificate(tmp_path: Path) -> tuple[Path, Path]:
    """Return the files of a certificate of this machine and of its key."""
    names = ("-subj", "/CN=localhost", "-addext", "subjectAltName=IP:127.0.0.1")
    files = (tmp_path / "cert.pem", tmp_path / "key.pem")
    make_key = ("openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "1", *names)
    made = (*make_key, "-out", files[0], "-keyout", files[1])
    subprocess.run(made, check=True, capture_output=True)
    return files


async def test_https_is_spoken_with_a_certificate(
    lab: Lab, certificate: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
):
    """The cookie is for HTTPS and this host alone; a client without a handshake is cut off."""
    monkeypatch.setattr(listener, "HEAD_S", 0.5)
    config = settings.load(workspace=lab.name, data_dir=lab.folder)
    broker = await find_broker(config)
    trust = ssl.create_default_context(cafile=certificate[0])
    try:
        served = listening(config, broker, Address("127.0.0.1", 0), tls=certificate)
        async with served as url, httpx2.AsyncClient(base_url=url, verify=trust) as http:
            assert url.startswith("https://")
            code = Logins(lab.folder).link(Grant())
            begun = await http.post("/login", data={"code": code})
            assert begun.headers["set-cookie"].startswith("__Host-hansard=")
            assert begun.headers["set-cookie"].endswith("; HttpOnly; SameSite=Lax; Secure")
            assert "max-age" in begun.headers["strict-transport-security"]
            assert (await http.get("/api/v1/me")).json()["operator"] is True
            reader, writer = await asyncio.open_connection("127.0.0.1", urlsplit(url).port)
            async with asyncio.timeout(5):
                assert await reader.read() == b""
            writer.close()
    finally:
        await broker.release()


async def test_a_session_survives_the_service(lab: Lab):
    """After a restart on the same port the browser is still logged in."""
    config = settings.load(workspace=lab.name, data_dir=lab.folder)
    broker = await find_broker(config)
    port = 0
    async with httpx2.AsyncClient() as http:
        for restarted in (False, True):
            async with listening(config, broker, Address("127.0.0.1", port)) as url:
                if not restarted:
                    port = urlsplit(url).port or 0
                    code = Logins(lab.folder).link(Grant())
                    await http.post(f"{url}/login", data={"code": code})
                assert (await http.get(f"{url}/api/v1/me")).status_code == 200
    await broker.release()


async def test_forms_are_bounded_and_damage_is_a_problem(lab: Lab, browser: Browser):
    """Too large a form, too many fields, text that is no form, and a folder that is a file."""
    large = await browser.log_in("x" * 5_000)
    assert (large.status_code, "4,096 bytes" in large.text) == (413, True)
    for body in (b"code=%ff%fe&" * 300, b"\x00\xff" * 100, b"code"):
        assert (await browser.http.post("/login", content=body)).status_code in {400, 403}
    await code_of(lab)
    folder = lab.folder / "http" / "links"
    folder.rename(folder.with_name("aside"))
    try:
        folder.write_bytes(b"")
        answer = await lab.http.post(lab.at("/logins"), json={})
        assert (answer.status_code, "cannot be written" in answer.text) == (503, True)
    finally:
        folder.unlink()
        folder.with_name("aside").rename(folder)
