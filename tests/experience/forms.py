"""A form on a local server that counts effects."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

PAGE = """<!doctype html><meta charset=utf-8><title>Guests</title>
<div id=notice><button onclick="did('Close'); notice.remove()">Close</button></div>
<label>Name <input id=name></label>
<button onclick="did('Send ' + document.getElementById('name').value)">Send</button>
<button onclick="did('Delete')">Delete</button><div id=more></div>
<script>
const did = what => {
  const asked = new XMLHttpRequest();
  asked.open('POST', '/effect', false);
  asked.send(what);
};
const told = new URLSearchParams(location.search);
if (!told.has('notice')) notice.remove();
if (told.has('twice')) {
  more.innerHTML = '<label>Name <input></label><button>Send</button><button>Close</button>';
}
if (told.has('frame')) more.innerHTML = "<iframe src='/?notice'></iframe>";
</script>"""


class Site(ThreadingHTTPServer):
    """The form, and its effects in order. It answers at every address of this machine."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("", 0), _Form)
        self.effects: list[str] = []

    def at(self, host: str = "127.0.0.1") -> str:
        """Return its address at a host."""
        return f"http://{host}:{self.server_port}/"


class _Form(BaseHTTPRequestHandler):
    server: Site

    def do_GET(self) -> None:
        """Answer with the form."""
        self._answer(PAGE.encode())

    def do_POST(self) -> None:
        """Note an effect."""
        length = int(self.headers.get("Content-Length") or 0)
        self.server.effects.append(self.rfile.read(length).decode())
        self._answer(b"")

    def _answer(self, body: bytes) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Print nothing."""


@contextmanager
def served() -> Iterator[Site]:
    """Serve the form until the end of the block."""
    site = Site()
    thread = threading.Thread(target=site.serve_forever, daemon=True)
    thread.start()
    try:
        yield site
    finally:
        site.shutdown()
        site.server_close()
        thread.join()
