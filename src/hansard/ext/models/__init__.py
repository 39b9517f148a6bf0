"""Model calls of programs that were not written for Hansard: recorded, replayed, in SQL."""
