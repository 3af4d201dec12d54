"""Workers that are Ray actors."""
