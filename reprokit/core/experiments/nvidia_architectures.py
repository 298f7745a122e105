"""The names of NVIDIA's architectures in ptxas and Triton."""

from __future__ import annotations

import re
from dataclasses import dataclass

from reprokit.core.shared.errors import BadInput

KNOWN_CAPABILITIES = (70, 75, 80, 86, 87, 89, 90, 100, 103, 110, 120, 121)
"""Capabilities of devices that were sold and that a ptxas supports."""
MIN_SUFFIXED = 90
"""From this capability on Triton appends an ``a``: the code runs on no later architecture."""


@dataclass(frozen=True)
class NvidiaArchitecture:
    """One architecture to compile for."""

    capability: int
    exact: str = ""
    """The name for ptxas, such as ``sm_100``, if it differs from Triton's own."""

    @property
    def name(self) -> str:
        """The name for ptxas."""
        return self.exact or triton_name(self.capability)


def triton_name(capability: int) -> str:
    """Return the name of a capability in Triton 3.x."""
    return f"sm_{capability}{'a' if capability >= MIN_SUFFIXED else ''}"


def read_architecture(words: str) -> list[NvidiaArchitecture]:
    """Read ``sm_90a,sm_100,120``: exact names, and numbers that get Triton's name; raises BadInput
    for anything else.
    """
    architectures = []
    for word in words.split(","):
        match = re.fullmatch(r"\s*(sm_|compute_)?(\d{2,3})([af]?)\s*", word)
        if not match or not 50 <= int(match[2]) < 300:
            raise BadInput(
                f"--arch {word.strip() or words!r}: no architecture has this name; write names such"
                " as sm_90a,sm_100,120"
            )
        capability = int(match[2])
        exact = f"sm_{match[2]}{match[3]}" if match[1] or match[3] else ""
        architectures.append(
            NvidiaArchitecture(capability, exact if exact != triton_name(capability) else "")
        )
    return list(dict.fromkeys(architectures))


def plain_architecture(arch: NvidiaArchitecture) -> NvidiaArchitecture | None:
    """Return the architecture without its suffix; None if it has none."""
    return (
        NvidiaArchitecture(arch.capability, f"sm_{arch.capability}")
        if not arch.name[-1].isdigit()
        else None
    )


def nearest_known(arch: NvidiaArchitecture) -> NvidiaArchitecture | None:
    """Return the nearest known architecture below; None if there is none."""
    below = [known for known in KNOWN_CAPABILITIES if known < arch.capability]
    return NvidiaArchitecture(below[-1]) if below else None


def runs_on(compiled: NvidiaArchitecture, device: int) -> bool:
    """Return whether a cubin for ``compiled`` runs on the device: the major version is the same,
    and the minor version is not later; with a suffix, both are the same.
    """
    if not compiled.name[-1].isdigit():
        return compiled.capability == device
    return compiled.capability // 10 == device // 10 and compiled.capability <= device
