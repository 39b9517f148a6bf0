"""Access control: who may connect, and what each principal and role may see.

Reads and writes principals, roles and views on record: principals with their tokens and refusals
(`principals`), the labels they accumulate across runs (`carried`), and roles with
the views and SQL answers served to them (`roles`).
"""
