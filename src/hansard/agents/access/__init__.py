"""Access control: who may connect, and what each principal and role may see.

Reads and writes principals, roles and views on record. Provides `principals`, the labels they
accumulate across runs (`carried`), tokens and the `authenticator`, `denials`, `roles`, and `views`
with the answered SQL queries.
"""
