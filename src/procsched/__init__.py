"""Placeholder: the public names come here, lazily."""
