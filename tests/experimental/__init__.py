"""Tests of operators: descriptions, execution and results."""
