import json
import random


class Tokenizer:
    def __init__(self, path):
        self.words = {word: i for i, word in enumerate(open(path).read().split())}

    def encode(self, text, length):
        ids = [self.words.get(word, 0) for word in text.split()][:length]
        return ids + [0] * (length - len(ids))


def read_lines(path):
    with open(path) as file:
        rows = [json.loads(row)["text"] for row in file]
    random.Random(0).shuffle(rows)
    return rows
