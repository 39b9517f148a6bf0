"""A window needs a display."""

import pytest

from hansard.ext.browser.chromium import program

pytestmark = pytest.mark.slow


def test_a_demonstration_without_a_display_says_what_to_do(call, record, monkeypatch):
    """And begins no run."""
    if program(window=True) is None:
        pytest.skip("no chromium or google-chrome on PATH, and HANSARD_BROWSER is not set")
    monkeypatch.delenv("DISPLAY", raising=False)
    done = call("demonstrate", "about:blank")
    assert done.code != 0
    assert "xvfb-run" in done.err
    assert record.runs() == []
