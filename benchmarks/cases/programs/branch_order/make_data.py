"""Write the plan of the branches and the series."""

import json

import numpy as np

plan = [
    {"priority": 3, "name": "wide", "kernel": 7},
    {"priority": 1, "name": "narrow", "kernel": 3},
    {"priority": 2, "name": "middle", "kernel": 5},
]
with open("plan.json", "w") as file:
    json.dump({"channels": 6, "branches": plan}, file)
rng = np.random.default_rng(0)
steps = np.arange(400)
series = np.sin(steps / 9) + 0.4 * np.sin(steps / 2.5) + rng.normal(0, 0.1, 400)
np.savez("series.npz", values=series.astype(np.float32), mean=series.mean(), std=series.std())
