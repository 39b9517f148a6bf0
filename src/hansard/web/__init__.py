"""What a browser reads: pages and their parts, without a server.

Touches no log: it is given what it shows.
Gives the pages (`pages`, from `templates/` and `static/`) and the pictures of a comparison
(`comparison_plots`).
"""
