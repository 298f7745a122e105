"""The interpreters that tests start end quickly: with torch imported, the collector's last looks
take a quarter of their time.
"""

import atexit
import gc

atexit.register(gc.freeze)
gc.set_threshold(50_000, 50, 1_000)  # importing torch makes much, and nothing of it is garbage
