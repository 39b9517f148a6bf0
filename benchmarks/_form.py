"""Form whose replay is measured, and the values to fill in."""

ARGUMENTS = ("--no-sandbox", "--disable-gpu")
PAGE = """<!doctype html><form onsubmit="event.preventDefault(); said.textContent = who.value">
<label>Who <input id="who"></label><label>What <input id="what"></label>
<button>Send</button></form><p id="said"></p>"""
PARAMS = {"who": "Ada", "what": "a letter"}
