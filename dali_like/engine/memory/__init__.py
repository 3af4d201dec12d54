"""Shared memory: one sparse anonymous file, slots and leases in it, record formats, and limits of the machine.

Runs in the main process and in workers. Imports nothing of the other engine packages.
"""
