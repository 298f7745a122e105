"""GPUs that can be simulated, by name and by record."""

from __future__ import annotations

import dataclasses

import pytest

from reprokit.core.experiments import nvidia_architectures
from reprokit.core.shared import simulation
from reprokit.core.shared.errors import BadInput


def test_a_gpu_is_known_by_what_people_call_it() -> None:
    """Any case, with or without the maker's and the line's name; a record of it has the same
    name.
    """
    for words in ("h100", "H100", "NVIDIA H100", "nvidia-h100"):
        assert simulation.gpu_named(words) is simulation.GPUS["h100"]
    assert simulation.gpu_named("GeForce RTX 4090") is simulation.GPUS["rtx4090"]
    told = dataclasses.asdict(simulation.GPUS["b200"])
    assert (
        simulation.read_gpu(told, "here") == simulation.GPUS["b200"]
        and simulation.gpu_label(told) == "b200"
    )
    assert simulation.gpu_label({**told, "name": "another"}) == "gpu.json"
    with pytest.raises(BadInput, match="known are a100, h100"):
        simulation.gpu_named("h1000")


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"major": None}, "has no major"),
        ({"major": "9"}, "which no device says"),
        ({"minor": -1}, "which no device says"),
        ({"major": 0}, "is no GPU"),
        ({"multi_processor_count": 0}, "is no GPU"),
        ({"name": 3}, "which no device says"),
        ({"total_memory": True}, "which no device says"),
        ({"warp_size": 1 << 60}, "which no device says"),
    ],
)
def test_a_record_is_not_believed(change: dict[str, object], says: str) -> None:
    """It may come from anywhere; unknown keys are left alone."""
    told = {**dataclasses.asdict(simulation.GPUS["h100"]), **change, "uuid": "GPU-1"}
    told = {k: v for k, v in told.items() if v is not None}
    with pytest.raises(BadInput, match=says):
        simulation.read_gpu(told, "gpu.json")


def test_architectures_are_read_as_triton_and_ptxas_name_them() -> None:
    """A bare number is what Triton makes of it, and a name is exactly that name."""
    found = nvidia_architectures.read_architecture("80, 90,sm_90,sm_90a,compute_100,sm_100f,120a")
    assert [a.name for a in found] == ["sm_80", "sm_90a", "sm_90", "sm_100", "sm_100f", "sm_120a"]
    assert [a.exact for a in found] == ["", "", "sm_90", "sm_100", "sm_100f", ""]
    for words in ("", "x", "sm_9", "sm_9000", "90b", "90,,100"):
        with pytest.raises(BadInput, match="no architecture is called that"):
            nvidia_architectures.read_architecture(words)


def test_where_a_cubin_runs() -> None:
    """On its own major version from its minor one on; with a suffix on its own capability alone."""
    ampere, plain, own = nvidia_architectures.read_architecture("80,sm_100,100")
    assert nvidia_architectures.runs_on(ampere, 86) and not nvidia_architectures.runs_on(ampere, 90)
    assert (
        nvidia_architectures.runs_on(plain, 103)
        and not nvidia_architectures.runs_on(own, 103)
        and nvidia_architectures.runs_on(own, 100)
    )
    assert (
        nvidia_architectures.plain_architecture(own) == plain
        and nvidia_architectures.plain_architecture(ampere) is None
    )
    (odd,) = nvidia_architectures.read_architecture("101")
    assert nvidia_architectures.nearest_known(odd) == own
    assert nvidia_architectures.nearest_known(nvidia_architectures.NvidiaArchitecture(70)) is None
