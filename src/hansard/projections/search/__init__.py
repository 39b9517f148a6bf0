"""Full-text search over events, in a file beside the tables.

Touches SQLite, and the log's rows as the tables have them. Provides the index that follows the log
(`search`), and its errors (`errors`).
"""
