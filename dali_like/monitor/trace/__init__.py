"""Records over time, their files, and their pictures."""
