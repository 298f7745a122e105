"""Writes calibration.txt: lines of printable text."""
import pathlib
import random

random.seed(5)
words = "quantise the weights of a small model then look at the loss on held out text".split()
lines = [" ".join(random.choices(words, k=12)) for _ in range(24)]
(pathlib.Path(__file__).parent / "calibration.txt").write_text("\n".join(lines) + "\n")
