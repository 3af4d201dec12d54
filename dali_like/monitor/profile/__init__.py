"""Profiles: where the functions of the program spend the time of the workers."""
