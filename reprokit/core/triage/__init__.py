"""What a ledger of many nights says: is it the same bug, is it new, is it gone, is it slower than
noise explains.

It reads no ledger; it must not import experiments or growth.
"""
