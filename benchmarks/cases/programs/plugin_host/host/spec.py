import ast
import re

_ITEM = re.compile(r"\s*([\w-]+)(?:\(([^)]*)\))?\s*$")


def parse_spec(text):
    """'conv(kernel=3) | drop-path(rate=0.2)' -> [('conv', {'kernel': 3}), ...]"""
    items = []
    for part in text.split("|"):
        match = _ITEM.match(part)
        if not match:
            raise ValueError(f"cannot read {part!r}")
        name, args = match.groups()
        kwargs = {}
        for pair in filter(None, (args or "").split(",")):
            key, _, value = pair.partition("=")
            kwargs[key.strip()] = ast.literal_eval(value.strip())
        items.append((name, kwargs))
    return items
