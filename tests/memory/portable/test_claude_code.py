"""Claude Code's own CLI, where installed, loads an export; a local server answers it."""

import http.server
import os
import shutil
import subprocess
import threading

import pytest

from hansard.ext.memory import harnesses
from hansard.ext.memory.harnesses import Harness
from tests.memory.portable.test_harnesses import SPACE

pytestmark = pytest.mark.thorough

CLAUDE = os.environ.get("HANSARD_CLAUDE") or shutil.which("claude")

QUICK = "memory/portable/test_harnesses.py::test_each_harness_finds_what_it_looks_for"

REFUSAL = b'{"type": "error", "error": {"type": "invalid_request_error", "message": "scripted"}}'


@pytest.mark.thorough(quick=QUICK)
@pytest.mark.skipif(CLAUDE is None, reason="Claude Code's CLI is not installed (HANSARD_CLAUDE)")
def test_claude_code_receives_instructions_skills_and_subagents(tmp_path):
    """Claude Code's first request to the model contains the exported instructions, skills and
    subagents.
    """
    bodies: list[bytes] = []

    class Scripted(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            bodies.append(self.rfile.read(int(self.headers["content-length"])))
            self.send_response(400)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(REFUSAL)))
            self.end_headers()
            self.wfile.write(REFUSAL)

    harnesses.write(tmp_path / "agent", harnesses.export(SPACE, Harness.CLAUDE_CODE).tree)
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Scripted)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    environment = {
        "PATH": os.environ["PATH"],
        "HOME": str(tmp_path),
        "ANTHROPIC_BASE_URL": f"http://127.0.0.1:{server.server_port}",
        "ANTHROPIC_API_KEY": "none",
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        "DISABLE_AUTOUPDATER": "1",
    }
    try:
        subprocess.run(
            [str(CLAUDE), "-p", "hello"],
            cwd=tmp_path / "agent",
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=120,
            check=False,
        )
    finally:
        server.shutdown()
        server.server_close()
    requests = b"".join(bodies)
    for text in (b"Be brief.", b"pay: Pays.", b"Reviews: code", b"Writes."):
        assert text in requests
