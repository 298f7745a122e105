"""Save the compiled code of a process as artifacts, and load it in a different process."""

from __future__ import annotations


def save_artifacts(path: str) -> None:
    """Write what this process compiled to ``path``; an empty file if torch saves nothing."""
    import torch

    saved = torch.compiler.save_cache_artifacts()
    with open(path, "wb") as file:
        file.write(saved[0] if saved else b"")


def load_artifacts(path: str) -> None:
    """Load the artifacts that a different process saved into the caches of this process."""
    import torch

    with open(path, "rb") as file:
        content = file.read()
    if content:
        torch.compiler.load_cache_artifacts(content)
