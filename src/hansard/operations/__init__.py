"""Operations of a record and of a session, each declared once.

The same declaration runs here for a trusted program, is sent by a restricted agent, and is answered
by the service.
"""
