"""Reports, live page, and values for other tools."""
