"""Write the interactions of users and items."""

import json
import random

random.seed(2)
lines = []
for user in range(30):
    liked = random.sample(range(user % 3 * 8, user % 3 * 8 + 12), 5)
    lines.append(json.dumps({"user": user, "items": liked}))
with open("interactions.jsonl", "w") as file:
    file.write("\n".join(lines) + "\n")
