"""Operators: how they are described and run, and what they do."""
