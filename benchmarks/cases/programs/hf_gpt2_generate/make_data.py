"""Writes vocab.json."""
import json
import pathlib

pairs = [(116, 104), (256, 101), (105, 110), (101, 114), (97, 110), (32, 257)]
(pathlib.Path(__file__).parent / "vocab.json").write_text(json.dumps({"merges": pairs}))
