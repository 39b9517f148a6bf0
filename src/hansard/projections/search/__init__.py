"""Full-text search over what events say, in a file beside the tables.

Touches SQLite, and the log's rows as the tables have them.
Gives the index that follows the log, and is asked (`search`), and its errors (`errors`).
"""
