"""Execution of a pipeline line by line, for debugging. Imports the two other folders."""
