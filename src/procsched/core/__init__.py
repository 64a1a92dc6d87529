"""The pure middle: is told the time, starts nothing, calls nobody."""
