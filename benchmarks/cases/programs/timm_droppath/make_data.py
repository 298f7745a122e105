"""Writes train.npz: 60 small pictures with a class-coloured square."""
import pathlib
import numpy as np

rng = np.random.default_rng(0)
n, size, classes = 60, 32, 5
labels = rng.integers(0, classes, n)
images = rng.integers(0, 80, (n, size, size, 3), dtype=np.uint8)
for i, c in enumerate(labels):
    y, x = rng.integers(0, size - 12, 2)
    images[i, y:y + 12, x:x + 12] = 100 + 25 * c
np.savez(pathlib.Path(__file__).parent / "train.npz", images=images, labels=labels)
