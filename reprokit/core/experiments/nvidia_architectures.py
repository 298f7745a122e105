"""Names of NVIDIA's architectures, as ptxas and Triton have them."""

from __future__ import annotations

import re
from dataclasses import dataclass

from reprokit.core.shared.errors import BadInput

KNOWN = (70, 75, 80, 86, 87, 89, 90, 100, 103, 110, 120, 121)
"""Capabilities of devices that were sold, which some ptxas knows."""
SUFFIXED = 90
"""From here on Triton appends an ``a``: code for one architecture and no later one."""


@dataclass(frozen=True)
class NvidiaArchitecture:
    """One architecture to compile for."""

    capability: int
    exact: str = ""
    """The name for ptxas, such as ``sm_100``, where it is another than Triton's own."""

    @property
    def name(self) -> str:
        return self.exact or of_triton(self.capability)


def of_triton(capability: int) -> str:
    """What Triton 3.x calls it."""
    return f"sm_{capability}{'a' if capability >= SUFFIXED else ''}"


def read_architecture(words: str) -> list[NvidiaArchitecture]:
    """``sm_90a,sm_100,120``: exactly these, and for a bare number what Triton makes of it; raises
    BadInput.
    """
    found = []
    for word in words.split(","):
        told = re.fullmatch(r"\s*(sm_|compute_)?(\d{2,3})([af]?)\s*", word)
        if not told or not 50 <= int(told[2]) < 300:
            raise BadInput(
                f"--arch {word.strip() or words!r}: no architecture is called that; name some, such"
                " as sm_90a,sm_100,120"
            )
        exact = f"sm_{told[2]}{told[3]}" if told[1] or told[3] else ""
        found.append(
            NvidiaArchitecture(int(told[2]), exact if exact != of_triton(int(told[2])) else "")
        )
    return list(dict.fromkeys(found))


def plain_architecture(arch: NvidiaArchitecture) -> NvidiaArchitecture | None:
    """The same without a suffix; None where it has none."""
    return (
        NvidiaArchitecture(arch.capability, f"sm_{arch.capability}")
        if not arch.name[-1].isdigit()
        else None
    )


def nearest_known(arch: NvidiaArchitecture) -> NvidiaArchitecture | None:
    """The nearest known one below it."""
    below = [k for k in KNOWN if k < arch.capability]
    return NvidiaArchitecture(below[-1]) if below else None


def runs_on(compiled: NvidiaArchitecture, device: int) -> bool:
    """A cubin for ``compiled`` runs on the device: the same major version, and no later minor one;
    with ``a`` only the same.
    """
    if not compiled.name[-1].isdigit():
        return compiled.capability == device
    return compiled.capability // 10 == device // 10 and compiled.capability <= device
