"""Whether a URL leads to one of some hosts."""

from __future__ import annotations

import re
from collections.abc import Iterable
from urllib.parse import urlsplit

_AMBIGUOUS = re.compile(r"[\\\s\x00-\x20\x7f]")


def host_in(url: str, hosts: Iterable[str]) -> bool:
    """Whether a URL's host is one of some; `.example.org` stands for every host under it.

    One with a backslash, a space or a control character is none: clients disagree on its host.
    """
    if _AMBIGUOUS.search(url):
        return False
    try:
        host = (urlsplit(url).hostname or "").lower().rstrip(".")
    except ValueError:
        return False
    wanted = [each.lower() for each in hosts]
    return any(
        host == want or (want.startswith(".") and host.endswith(want)) for want in wanted if host
    )
