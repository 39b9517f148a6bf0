"""Tables of what one role sees: made by filtering events before they are projected."""
