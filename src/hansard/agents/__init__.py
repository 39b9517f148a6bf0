"""What an agent uses: the session, effects, the gate."""
