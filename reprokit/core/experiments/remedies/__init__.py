"""What avoids a failure until it is fixed: settings, arguments, changed lines, and advice in words.

It must not import ``core.growth``, ``core.reported`` and ``core.triage``.
"""
