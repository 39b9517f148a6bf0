"""Browser for actions replayed from the command line; needs `hansard[browser]`.

Uses `hansard.client` and playwright, which nothing else imports. `chromium` opens a page.
"""
