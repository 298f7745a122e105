"""GPUs that can be simulated are found by name and by record."""

from __future__ import annotations

import dataclasses

import pytest

from reprokit.core.experiments import nvidia_architectures
from reprokit.core.shared import simulation
from reprokit.core.shared.errors import BadInput


def test_a_gpu_is_known_by_what_people_call_it() -> None:
    """A name is found in any case, with or without the vendor and the product line; the record of a
    GPU has the same name.
    """
    for words in ("h100", "H100", "NVIDIA H100", "nvidia-h100"):
        assert simulation.gpu_named(words) is simulation.GPUS["h100"]
    assert simulation.gpu_named("GeForce RTX 4090") is simulation.GPUS["rtx4090"]
    record = dataclasses.asdict(simulation.GPUS["b200"])
    assert (
        simulation.read_gpu(record, "here") == simulation.GPUS["b200"]
        and simulation.gpu_label(record) == "b200"
    )
    assert simulation.gpu_label({**record, "name": "another"}) == "gpu.json"
    with pytest.raises(BadInput, match="use a100, h100"):
        simulation.gpu_named("h1000")


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"major": None}, "has no major"),
        ({"major": "9"}, "which no device reports"),
        ({"minor": -1}, "which no device reports"),
        ({"major": 0}, "no GPU has compute capability"),
        ({"multi_processor_count": 0}, "no GPU has compute capability"),
        ({"name": 3}, "which no device reports"),
        ({"total_memory": True}, "which no device reports"),
        ({"warp_size": 1 << 60}, "which no device reports"),
    ],
)
def test_a_record_with_wrong_values_is_refused(change: dict[str, object], says: str) -> None:
    """A record may come from anywhere: wrong values are refused, and unknown keys are ignored."""
    record = {**dataclasses.asdict(simulation.GPUS["h100"]), **change, "uuid": "GPU-1"}
    record = {k: v for k, v in record.items() if v is not None}
    with pytest.raises(BadInput, match=says):
        simulation.read_gpu(record, "gpu.json")


def test_architectures_are_read_as_triton_and_ptxas_name_them() -> None:
    """A bare number means the architecture that Triton makes of it, and a name means exactly that
    name.
    """
    architectures = nvidia_architectures.read_architecture(
        "80, 90,sm_90,sm_90a,compute_100,sm_100f,120a"
    )
    assert [a.name for a in architectures] == [
        "sm_80",
        "sm_90a",
        "sm_90",
        "sm_100",
        "sm_100f",
        "sm_120a",
    ]
    assert [a.exact for a in architectures] == ["", "", "sm_90", "sm_100", "sm_100f", ""]
    for words in ("", "x", "sm_9", "sm_9000", "90b", "90,,100"):
        with pytest.raises(BadInput, match="no architecture has this name"):
            nvidia_architectures.read_architecture(words)


def test_where_a_cubin_runs() -> None:
    """A cubin runs on its own major version from its minor version on; with a suffix, on its own
    capability alone.
    """
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
