"""Shared memory: one sparse anonymous file, its slots and leases, record formats, and limits of the machine.

Runs in the main process and in workers. Imports nothing of the other engine packages.
"""
