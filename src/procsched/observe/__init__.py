"""Subscribers to events: they look, and change nothing. In the parent."""
