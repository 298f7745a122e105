"""A healthy cell with a slow loop that prints every few seconds.

Truth: it advances; a step takes 4 seconds.

Run: {python} kernel_session.py kernel_healthy.py
Attach: child ipykernel
Modes: busy
Needs: ipykernel jupyter_client
"""

import time

for epoch in range(10_000):
    time.sleep(4)
    print("epoch", epoch)
