"""A browser for actions that are done again from the command line: needs `hansard[browser]`.

It may touch `hansard.client` and playwright, which nothing else imports. `chromium` opens a page.
"""
