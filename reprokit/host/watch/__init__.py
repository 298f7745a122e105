"""Watch processes from outside: samples, stacks, what they wait for, whether they advance.

This package imports only ``host.system``, and must not start or end a target.
"""
