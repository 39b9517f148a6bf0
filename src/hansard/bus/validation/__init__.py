"""What of a log counts: for who reads it, and for the recheck of a whole one.

Touches the log's port and the domain; no broker, no clock.
Gives what stands for a commit that does not fit (`quarantine`), reads that replace those (`reads`)
and the recheck (`check`). What fits where is said by `hansard.domain.integrity`.
"""
