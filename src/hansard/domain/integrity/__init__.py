"""Who may write what where, and who belongs to a run.

Touches nothing, as all of the domain.
Gives `membership` (who is in a run, learnt from its commits), `authorship` (whether a commit may
stand where it stands, by whom it says), `content` (whether what it says may stand there) and
`fold`: who is in which run, for whoever reads commits in the order of the log.
"""
