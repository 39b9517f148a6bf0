"""Checks of authorship and run membership of commits.

Pure, as all of the domain. It defines `membership` (the agents of a run, learned from its commits),
`authorship` (whether a commit's author may write it to its stream), `content` (whether its events
may be in that stream) and `Fold`: the agents of every run, for a reader of commits in log order.
"""
