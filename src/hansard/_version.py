"""The versions that are put on record with what this code writes."""

from __future__ import annotations

__version__ = "0.1.0"

SERVER_VERSION = f"hansard/{__version__}"
"""Name and version of the writer, stored with each event."""

PROTOCOL_VERSION = "hansard-events/1"
"""The form of envelope and events; it changes when a reader must know."""
