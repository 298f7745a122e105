from dataclasses import dataclass


@dataclass
class Settings:
    size: int = 6
    steps: int = 2

    @classmethod
    def read(cls, words):
        return cls(**{key: int(value) for key, value in (w.split("=") for w in words)})
