"""Travel of a user's callable to workers by value, and objects that cannot travel."""
