"""A healthy kernel after its first cell: it waits for the next one.

Truth: it is idle.

Run: {python} kernel_session.py kernel_idle_healthy.py
Attach: child ipykernel
Modes: idle
Needs: ipykernel jupyter_client
"""

print(sum(number * number for number in range(1000)))
