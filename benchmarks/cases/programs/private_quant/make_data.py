"""Write the table of the regression and the configuration."""

import numpy as np
import yaml

rng = np.random.default_rng(3)
x = rng.normal(size=(96, 6))
y = np.tanh(x @ rng.normal(size=6)) + 0.05 * rng.normal(size=96)
header = ",".join([f"f{k}" for k in range(6)] + ["target"])
np.savetxt("sensors.csv", np.column_stack([x, y]), delimiter=",", header=header, comments="", fmt="%.5f")
with open("config.yaml", "w") as file:
    yaml.safe_dump({"width": 16, "levels": 8, "clip": 1.0, "noise": 0.01, "rate": 0.2, "epochs": 4, "batch": 16}, file)
