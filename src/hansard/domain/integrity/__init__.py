"""Checks of authorship and run membership of commits.

Pure, as all of the domain. `authorship` checks that a commit's author may write it to its stream,
and has `Fold`: the agents of every run, for a reader of commits in log order. `content` checks that
its events may be in that stream, and learns the agents of a run from its commits.
"""
