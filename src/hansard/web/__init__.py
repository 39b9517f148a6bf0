"""Pages for a browser and their parts, without a server.

Reads no log: the caller passes the data. Provides the pages (`pages`, from `templates/` and
`static/`) and the figures of a comparison (`comparison_plots`).
"""
