"""`python -m hansard` is the `hansard` command."""

from __future__ import annotations

from hansard.cli import main

if __name__ == "__main__":
    main()
