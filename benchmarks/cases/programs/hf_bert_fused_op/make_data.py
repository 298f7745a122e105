"""Writes reviews.csv."""
import csv
import pathlib
import random

random.seed(2)
good, bad = "great warm lovely fine clever".split(), "dull cold awful poor silly".split()
rest = "the film plot cast score was and with its a very".split()
with open(pathlib.Path(__file__).parent / "reviews.csv", "w", newline="") as f:
    w = csv.writer(f)
    w.writerow(["text", "label"])
    for _ in range(40):
        label = random.randint(0, 1)
        words = random.choices(rest, k=random.randint(5, 9)) + random.choices((bad, good)[label], k=2)
        random.shuffle(words)
        w.writerow([" ".join(words), label])
