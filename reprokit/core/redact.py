"""The one room that knows what is private and how it is hidden.

A :class:`Redactor` replaces each secret by a placeholder that names its kind and a number, the same one
wherever the secret stands (``<token-1>``). Its order of rules is fixed: whole blocks and well-known
token shapes first, then assignments, then names and addresses. What diagnoses a bug (torch paths,
kernel names, hashes of commits, versions) is left alone; the tests hold both sides.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from . import redact_rules
from .records import Private

SECRET_NAME = re.compile(
    r"(?:TOKEN|SECRET|PASSWO?R?D|PASSPHRASE|CREDENTIAL|COOKIE|(?:^|_)(?:API|ACCESS|PRIVATE|SIGNING|ENCRYPTION|AUTH|LICENSE|SSH|GPG)_?KEY|_KEY$|^KEY$|APIKEY|_AUTH$|_PAT$)",
    re.IGNORECASE,
)
"""Names of environment variables whose values are secrets wherever they appear."""

ALLOWED_VARIABLES = re.compile(
    r"(?:TORCH|TRITON|CUDA|NCCL|GLOO|INDUCTOR|AOT|PYTORCH|OMP|MKL|KMP|GOMP|ROCR|HIP|HSA|AMD|NVIDIA|UCX|XLA)[A-Z0-9_]*"
    r"|RANK|WORLD_SIZE|LOCAL_RANK|LOCAL_WORLD_SIZE|CC|CXX|CFLAGS|CXXFLAGS|LDFLAGS|LD_PRELOAD|LD_LIBRARY_PATH|PYTHONPATH|PYTHONHASHSEED|LANG|LC_ALL|CONDA_DEFAULT_ENV"
)
"""Environment variables that may enter a pack, by full match. Everything else stays at home."""


class Redactor:
    """Hides private text; one instance for one pack, so that equal secrets get equal placeholders."""

    def __init__(self, private: Private | None = None) -> None:
        self._numbers: dict[tuple[str, str], str] = {}
        self._counts: dict[str, int] = {}
        self._rules = redact_rules.make(private or Private())

    def text(self, text: str) -> str:
        """Give ``text`` without what is private; giving the result again changes nothing."""
        lowered = text.lower()
        for hint, pattern, kind, keep in self._rules:
            if hint and not any(h in lowered for h in hint):
                continue
            text = pattern.sub(lambda m, kind=kind, keep=keep: self._replace(m, kind, keep), text)  # type: ignore[misc]
        return text

    def _replace(self, found: re.Match[str], kind: str, keep: Callable[[re.Match[str]], bool] | None) -> str:
        if keep is not None and keep(found):
            return found.group(0)
        secret = found.group("secret")
        start, end = found.span("secret")
        whole = found.group(0)
        head, tail = whole[: start - found.start()], whole[end - found.start() :]
        return f"{head}{self._placeholder(kind, secret)}{tail}"

    def _placeholder(self, kind: str, secret: str) -> str:
        if kind == "home":
            return "<home>"
        key = (kind, secret.lower() if kind in ("user", "host", "email") else secret)
        if key not in self._numbers:
            self._counts[kind] = self._counts.get(kind, 0) + 1
            self._numbers[key] = f"<{kind}-{self._counts[kind]}>"
        return self._numbers[key]
