"""Make events.csv: one event is about an item that the catalogue no longer has."""
import random

rng = random.Random(4)
with open("events.csv", "w") as f:
    f.write("user,item\n")
    for i in range(120000):
        item = 77 if i == 101234 else rng.randrange(50)
        f.write(f"{rng.randrange(40)},{item}\n")
