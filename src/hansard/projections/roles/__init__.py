"""Tables of what one role sees, made by filtering events before they are projected.

Touches the log, the role's rules, and files of that role's own. Provides updated and published
tables (`build`).
"""
