from dataclasses import dataclass, fields


@dataclass(frozen=True)
class Settings:
    channels: int = 3
    samples: int = 75
    width: int = 8
    factor: int = 2
    stages: int = 3
    batch: int = 4
    seed: int = 0

    @classmethod
    def parse(cls, words):
        known = {f.name for f in fields(cls)}
        values = {}
        for word in words:
            key, _, value = word.lstrip("-").partition("=")
            if key not in known:
                raise SystemExit(f"unknown setting {key}; known are {', '.join(sorted(known))}")
            values[key] = int(value)
        return cls(**values)
