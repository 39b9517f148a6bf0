"""Browser actions: pages whose actions are steps, replays of actions, demonstrations.

A slice on the public core. `hansard.ext.browser.chromium` opens a page.
"""
