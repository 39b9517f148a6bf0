"""Run a client of the conformance suite through the proxy: given the client's program, the server's
address as its last argument.

The suite's client takes the code from the first redirect of an authorization endpoint. Here it
follows a redirect to another authorization endpoint before, as a browser does.
"""

import re
import signal
import subprocess
import sys

PROXY = [sys.executable, "-m", "hansard", "mcp", "proxy", "--http", "0", "--url"]
CLIENT = """
import runpy, sys, urllib.parse
import httpx2

get = httpx2.AsyncClient.get

async def followed(self, url, **options):
    answer = await get(self, url, **options)
    location = answer.headers.get("location", "")
    if urllib.parse.urlsplit(location).path == "/authorize":
        return await followed(self, location, **options)
    return answer

httpx2.AsyncClient.get = followed
sys.argv = sys.argv[1:]
runpy.run_path(sys.argv[0], run_name="__main__")
"""
client, url = sys.argv[1], sys.argv[-1]

with subprocess.Popen([*PROXY, url], stderr=subprocess.PIPE, text=True) as proxy:
    assert proxy.stderr is not None
    found = next(filter(None, (re.search(r"http://\S+/mcp$", line) for line in proxy.stderr)))
    code = subprocess.call([sys.executable, "-c", CLIENT, client, found.group()])
    proxy.send_signal(signal.SIGTERM)
    proxy.communicate()
sys.exit(code)
