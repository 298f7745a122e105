"""Watch processes from outside: samples, stacks, what they wait for, whether they advance.

It imports only ``host.system``; it must not start or end a target.
"""
