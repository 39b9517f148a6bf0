"""The operating system's user, who acts where nobody else is named."""

from __future__ import annotations

import os
import pwd


def os_user() -> str:
    """Return the login name of this process's effective user, or `uid-1000` if it has none."""
    uid = os.geteuid()
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"uid-{uid}"


OS_USER = os_user()
"""The default of `by=`: who approves, settles or changes something, for the record."""
