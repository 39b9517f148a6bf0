"""Validity of a log's commits, for its readers and for the recheck of a whole log.

Touches the log's port and the domain; no broker, no clock. Provides stand-ins for commits that do
not fit (`quarantine`), reads that use them (`reads`) and the recheck (`check`). The rules are in
`hansard.domain.integrity`.
"""
