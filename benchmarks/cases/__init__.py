"""What the measurements run: programs that fail, texts that look private, and descriptions of both.

Nothing here measures or imports a measurement.
"""
