"""``python -m procsched``: one call."""

from procsched.cli import main

main()
