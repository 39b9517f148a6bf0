"""Commands of one run, `hansard run ...`: one module for each kind of question.

Uses `hansard.inspect`, `hansard.agents` and the page of `hansard.web`. The command line imports a
module when one of its commands is called.
"""
