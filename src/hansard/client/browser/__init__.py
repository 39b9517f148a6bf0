"""A page of a browser, its actions as steps: `session.browser(page)` and `session.run_actions`.

It may touch `hansard.agents` and what is below, and is handed a page of playwright's async API; it
imports no playwright. It gives `AsyncBrowser` (`browser`) and the replay of a cache (`replay`).
"""
