"""Statistics, and their analysis. Imports neither `trace` nor `show`."""
