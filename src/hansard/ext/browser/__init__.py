"""Browser actions: pages whose actions are steps, replays of actions, demonstrations.

A slice on the public core. `replays` has what `hansard.actions` offers; `chromium` opens a page.
No module but `chromium` imports playwright.
"""
