"""What the user may ask for: the target, the options, and the command line that asks again.

It imports only ``host.system``; it must not start a target.
"""
