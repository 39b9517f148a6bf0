"""Run a client of the conformance suite through the proxy."""

import re
import signal
import subprocess
import sys

PROXY = [sys.executable, "-m", "hansard", "mcp", "proxy", "--http", "0", "--url"]
client, url = sys.argv[1], sys.argv[-1]

with subprocess.Popen([*PROXY, url], stderr=subprocess.PIPE, text=True) as proxy:
    assert proxy.stderr is not None
    found = next(filter(None, (re.search(r"http://\S+/mcp$", line) for line in proxy.stderr)))
    code = subprocess.call([sys.executable, client, found.group()])
    proxy.send_signal(signal.SIGTERM)
    proxy.communicate()
sys.exit(code)
