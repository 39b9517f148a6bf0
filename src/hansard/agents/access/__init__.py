"""Who may come in, and what whoever is in is shown.

Touches principals, roles and views on record.
Gives `principals`, what they carry from run to run (`carried`), `tokens`, the `authenticator`,
`denials`, `roles`, `views` and what was answered in SQL (`queries`).
"""
