"""The properties of recorded values that a program gives to the tensors that it draws.

A property is, for example, a range, that the values are sorted, or a NaN at one position. A program
has any choice of them, so a reduction can leave out each one that the failure does not need. The
properties have three levels: a descriptor, which reveals no value but small integers and powers of
two; the mean and the standard deviation; and single values.
"""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from reprokit.core.reduce.graphs.graph_units import GraphProgram
from reprokit.core.shared.source import tensors

MAX_WRITTEN_VALUES = 16
"""Values of an input that a program may have."""
LEVELS = ("descriptor", "exact", "statistics", "values")
"""In the order in which they are tried. ``exact`` is a descriptor whose ranges are not rounded."""
DRAWS = frozenset({"descriptor", "exact", "statistics"})
"""The levels at which a program draws random values."""
_FLOATS = frozenset(f"torch.{name}" for name in ("bfloat16", "float16", "float32", "float64"))
_SMALL_INTEGER = 1 << 16
"""An integer below this, such as an index, may be in a program as it is."""
_USUAL = 0.5, 8.0
"""If the largest absolute value is between these, a normal distribution resembles the values."""
_MOST_PERMUTED = 1 << 22
_SPECIAL = {
    "nan": ("torch.nan", "NaN"),
    "inf": ("torch.inf", "infinity"),
    "-inf": ("-torch.inf", "minus infinity"),
    "-zero": ("-0.0", "minus zero"),
    "zero": ("0", "zero"),
    "lowest": ("", "the lowest number of the type"),
    "highest": ("", "the highest number of the type"),
}
"""Text and name of each special value; the text of a limit depends on the type."""


@dataclass(frozen=True)
class ValueProperty:
    """One property of the values of an input."""

    name: str
    """Of the input."""
    kind: str
    """``range``, ``unique``, ``sorted``, ``normal``, ``rest`` (all elements that have no value of
    their own are zero), ``value`` or a special value.
    """
    numbers: tuple[float, ...] = ()
    """Of a range or a distribution; of a special value without a position, its share."""
    place: int | None = None
    """The position in the flat tensor of a single element."""


def recorded_properties(
    values: Mapping[str, Mapping[str, Any]], described: Mapping[str, Any]
) -> dict[str, list[ValueProperty]]:
    """Return the properties of the recorded inputs, by level; a level without any is left out.

    ``values`` is the metadata of the inputs by name, ``described`` what the agent recorded. Raises
    ValueError for a description that is not made of numbers, because it becomes program text.
    """
    levels: dict[str, list[ValueProperty]] = {level: [] for level in LEVELS}
    for name, description in described.items():
        facts = values.get(name, {})
        if facts.get("kind") != "tensor" or facts.get("made_by") or facts.get("placements"):
            continue
        if None in facts["shape"]:
            continue
        if not (_is_integer(facts) or _is_bool(facts) or facts["dtype"] in _FLOATS):
            continue
        count = math.prod(facts["shape"])
        of_input = _Recorded(name, facts["dtype"], count, description)
        special, order = of_input.special(), of_input.order()
        rounded, exact = of_input.range(True), of_input.range(False)
        levels["descriptor"] += [*rounded, *order, *special]
        levels["exact"] += [*exact, *order, *special]
        levels["statistics"] += [*of_input.normal(), *special]
        levels["values"] += of_input.values()
    if levels["exact"] == levels["descriptor"]:
        del levels["exact"]
    if not any(p.kind == "normal" for p in levels["statistics"]):
        del levels["statistics"]
    return {level: properties for level, properties in levels.items() if properties}


def with_properties(graph: GraphProgram, properties: Iterable[ValueProperty]) -> GraphProgram:
    """Return the graph with exactly these properties of the values of its inputs."""
    by_name: dict[str, list[ValueProperty]] = {}
    for one in properties:
        by_name.setdefault(one.name, []).append(one)
    values = {
        name: {**facts, "properties": by_name.get(name, ())} for name, facts in graph.values.items()
    }
    return dataclasses.replace(graph, values=values)


def written_values(properties: Iterable[ValueProperty]) -> int:
    """Return the largest number of single values that one input has."""
    counts: dict[str, int] = {}
    for one in properties:
        if one.kind == "value":
            counts[one.name] = counts.get(one.name, 0) + 1
    return max(counts.values(), default=0)


def rounded(one: ValueProperty) -> list[ValueProperty]:
    """Return the property with fewer digits of its value, the shortest number first."""
    if one.kind != "value" or not isinstance(one.numbers[0], float):
        return []
    value = one.numbers[0]
    shorter = dict.fromkeys(float(f"{value:.{digits}e}") for digits in (0, 2))
    return [dataclasses.replace(one, numbers=(short,)) for short in shorter if short != value]


@dataclass(frozen=True)
class _Recorded:
    """The description of one input."""

    name: str
    dtype: str
    count: int
    description: Mapping[str, Any]

    @property
    def is_integer(self) -> bool:
        return _is_integer({"dtype": self.dtype})

    @property
    def is_bool(self) -> bool:
        return _is_bool({"dtype": self.dtype})

    def number(self, key: str) -> float:
        value = self.description.get(key, math.nan)
        if not isinstance(value, (bool, int, float)):
            raise ValueError(f"{value!r} is not a number")  # it becomes program text
        return value

    def range(self, is_rounded: bool) -> list[ValueProperty]:
        low, high = self.number("low"), self.number("high")
        if math.isnan(low):
            return []
        if self.is_bool:
            return [ValueProperty(self.name, "range", (low, high))] if low == high else []
        if self.is_integer:
            if (is_rounded or max(abs(low), abs(high)) >= _SMALL_INTEGER) and (low or high):
                first, last = _limits(self.dtype)
                low = max(_power_below(int(low)), first)
                high = min(-_power_below(-int(high)), last)
            is_usual = low == 0 and high == 1
        else:
            low, high = _one_digit(low, math.floor), _one_digit(high, math.ceil)
            is_usual = low < 0 < high and _USUAL[0] <= max(-low, high) <= _USUAL[1]
        return [] if is_usual else [ValueProperty(self.name, "range", (low, high))]

    def order(self) -> list[ValueProperty]:
        if self.count < 3 or self.is_bool or self.number("low") == self.number("high"):
            return []
        kinds = ["unique"] if self.description.get("is_unique") and self.is_integer else []
        kinds += ["sorted"] if self.description.get("is_sorted") else []
        return [ValueProperty(self.name, kind) for kind in kinds]

    def special(self) -> list[ValueProperty]:
        found: list[ValueProperty] = []
        for kind, special in (self.description.get("special") or {}).items():
            places, count = special["positions"], special["count"]
            share = _one_digit(count / self.number("count"), round)
            # ranges with zero draw some zeros
            is_usual = kind == "zero" and (self.is_integer or self.is_bool) and share <= 0.5
            if kind not in _SPECIAL or is_usual:
                continue
            if len(places) == count:
                found += [ValueProperty(self.name, kind, (), int(place)) for place in places]
            else:
                found.append(ValueProperty(self.name, kind, (min(share, 1.0),)))
        return found

    def normal(self) -> list[ValueProperty]:
        mean, std = self.number("mean"), self.number("std")
        is_usual = abs(mean) < _USUAL[0] <= std < 1 / _USUAL[0]
        if self.is_integer or self.is_bool or is_usual or not math.isfinite(mean + std):
            return []
        return [ValueProperty(self.name, "normal", (float(f"{mean:.1e}"), float(f"{std:.1e}")))]

    def values(self) -> list[ValueProperty]:
        numbers = self.description.get("values")
        if not isinstance(numbers, list) or len(numbers) != self.count:
            return []
        for value in numbers:
            _number_text(value)
        single = [
            ValueProperty(self.name, "value", (value,), place)
            for place, value in enumerate(numbers)
            if value or math.copysign(1, value) < 0
        ]
        return [ValueProperty(self.name, "rest"), *single]


def maker_rows(variable: str, facts: Mapping[str, Any]) -> list[str]:
    """Return the lines that make a tensor whose values have the properties in ``facts``."""
    properties: Sequence[ValueProperty] = facts.get("properties") or ()
    if not properties:
        return [f"{variable} = {tensors.tensor_text(facts)}"]
    plain = {**facts, "requires_grad": False}
    shape, values = facts["shape"], [p for p in properties if p.kind == "value"]
    single = [p for p in properties if p.place is not None]
    if values and (math.prod(shape) <= MAX_WRITTEN_VALUES or len(values) > MAX_WRITTEN_VALUES):
        rows, single = [f"{variable} = {_literal_tensor(facts, values)}"], []
    else:
        rows = [f"{variable} = {tensors.tensor_text(plain, _draw(facts, properties))}"]
    kinds = {p.kind for p in properties}
    rows += [f"{variable} = {variable}.sort().values"] if "sorted" in kinds else []
    for one in properties:
        if one.kind in _SPECIAL and one.place is None:
            (share,) = one.numbers
            chosen = f"torch.rand({variable}.shape) < {share!r}" if share < 1 else "..."
            rows.append(f"{variable}[{chosen}] = {_special_text(one.kind, facts['dtype'])}")
    for one in single:
        special = "" if one.numbers else _special_text(one.kind, facts["dtype"])
        text = special or _number_text(one.numbers[0])
        index = ", ".join(map(str, _index(one.place or 0, shape))) or "..."
        rows.append(f"{variable}[{index}] = {text}")
    return rows + [f"{variable}.requires_grad_()"] * bool(facts["requires_grad"])


def _special_text(kind: str, dtype: str) -> str:
    return _SPECIAL[kind][0] or str(_limits(dtype)[kind == "highest"])


def _draw(
    facts: Mapping[str, Any], properties: Sequence[ValueProperty]
) -> Callable[[str, str], str] | None:
    """Return the function that writes the drawn tensor; None if it is drawn as usual."""
    found = {p.kind: p.numbers for p in properties}
    dtype, count = facts["dtype"], math.prod(facts["shape"])
    is_integer = _is_integer(facts)
    default = "torch.int64" if is_integer else "torch.float32"
    of_type = "" if dtype == default else f", dtype={dtype}"
    if "value" in found or "rest" in found:
        every = "" if dtype == "torch.float32" else f", dtype={dtype}"
        return lambda size, where: f"torch.zeros({size}{every}{where})"
    if "normal" in found:
        mean, std = found["normal"]
        return lambda size, where: f"torch.randn({size}{of_type}{where}) * {std!r} + {mean!r}"
    if "range" not in found:
        return None
    low, high = found["range"]
    if low == high:
        text = _number_text(low)
        return lambda size, where: f"torch.full({size}, {text}{of_type}{where})"
    if is_integer:
        last = min(int(high) + 1, (1 << 63) - 1)
        numbers = int(high) - int(low) + 1
        if "unique" in found and count <= numbers <= _MOST_PERMUTED:
            shift = f" + {low}" if low else ""
            convert = "" if dtype == "torch.int64" else f".to({dtype})"
            return lambda size, where: (
                f"(torch.randperm({numbers}{where})[:{count}].reshape({size}){shift}){convert}"
            )
        return lambda size, where: f"torch.randint({int(low)}, {last}, {size}{of_type}{where})"
    if low < 0 < high:
        most = max(-low, high)
        return lambda size, where: (
            f"(torch.rand({size}{of_type}{where}) * 2 - 1) * {_number_text(most)}"
        )
    width = float(f"{high - low:.6g}")
    factor = f" * {width!r}" if width != 1 else ""
    shift = f" + {low!r}" if low else ""
    return lambda size, where: f"torch.rand({size}{of_type}{where}){factor}{shift}"


def _literal_tensor(facts: Mapping[str, Any], values: Sequence[ValueProperty]) -> str:
    shape, dtype = facts["shape"], facts["dtype"]
    flat: list[object] = [False if _is_bool(facts) else 0 if _is_integer(facts) else 0.0]
    flat *= math.prod(shape)
    for one in values:
        flat[one.place or 0] = one.numbers[0]
    of_type = "" if dtype in ("torch.int64", "torch.bool", "torch.float32") else f", dtype={dtype}"
    device = facts["device"]
    where = "" if device == "cpu" else f', device="{device}"'
    text = f"torch.tensor({_nested(flat, shape)}{of_type}{where})"
    stride = facts["stride"]
    if stride is None or list(stride) == tensors.contiguous_strides(shape):
        return text
    sizes = f"{tensors.size_text(shape)}, {tensors.size_text(stride)}"
    return f"torch.empty_strided({sizes}, dtype={dtype}{where}).copy_({text})"


def describe_properties(
    values: Mapping[str, Mapping[str, Any]], properties: Sequence[ValueProperty]
) -> list[str]:
    """Return a sentence for each input on what of its values the failure depends on."""
    sentences = []
    for name in dict.fromkeys(p.name for p in properties):
        facts = values[name]
        own = [p for p in properties if p.name == name]
        clauses = [clause for p in own if p.place is None and (clause := _clause(p, facts))]
        places: dict[str, list[str]] = {}
        for one in own:
            if one.place is not None:
                about = _SPECIAL[one.kind][1] if one.kind in _SPECIAL else "the recorded value"
                places.setdefault(about, []).append(str(_index(one.place, facts["shape"])))
        clauses += [
            f"{about} at position{'s' * (len(where) > 1)} {_and(where)}"
            for about, where in places.items()
        ]
        about = f"({facts['dtype'].removeprefix('torch.')}, shape {list(facts['shape'])})"
        sentences.append(
            f"The failure depends on the values of input `{_plain_name(name)}` {about}:"
            f" {'; '.join(clauses) or 'all are zero'}."
        )
    return sentences


def _clause(one: ValueProperty, facts: Mapping[str, Any]) -> str:
    if one.kind == "range":
        low, high = map(_number_text, one.numbers)
        what = "integers" if _is_integer(facts) else "numbers"
        return f"all are {low}" if low == high else f"{what} from {low} to {high}"
    if one.kind == "normal":
        return f"a mean of about {one.numbers[0]:g} and a standard deviation of about" + (
            f" {one.numbers[1]:g}"
        )
    if one.kind in _SPECIAL:
        return f"{_SPECIAL[one.kind][1]} in about {one.numbers[0]:.0%} of the elements"
    return {"unique": "no value occurs twice", "sorted": "they are sorted"}.get(one.kind, "")


def _plain_name(name: str) -> str:
    """Return the user's name of an input: ``x`` for ``l_x_``."""
    return name.removeprefix("l_").removeprefix("g_").strip("_") or name


def _is_integer(facts: Mapping[str, Any]) -> bool:
    return bool(re.fullmatch(r"torch\.u?int\d+", facts["dtype"]))


def _is_bool(facts: Mapping[str, Any]) -> bool:
    return bool(facts["dtype"] == "torch.bool")


def _index(place: int, shape: Sequence[int]) -> list[int]:
    """Return the index of a position in the flat tensor."""
    index = []
    for size in reversed(shape):
        index.append(place % size)
        place //= size
    return index[::-1]


def _nested(flat: Sequence[object], shape: Sequence[int]) -> str:
    if not shape:
        return _number_text(flat[0])
    step = len(flat) // shape[0]
    rows = (flat[i * step : (i + 1) * step] for i in range(shape[0]))
    return f"[{', '.join(_nested(row, shape[1:]) for row in rows)}]"


def _number_text(value: object) -> str:
    if not isinstance(value, (bool, int, float)):
        raise ValueError(f"{value!r} is not a number")  # it becomes program text
    if isinstance(value, float) and not math.isfinite(value):
        return "torch.nan" if math.isnan(value) else "torch.inf" if value > 0 else "-torch.inf"
    return repr(value)


def _limits(dtype: str) -> tuple[int, int]:
    """Return the smallest and the largest number of an integer type."""
    bits = int(dtype.rpartition("int")[2])
    return (0, (1 << bits) - 1) if "uint" in dtype else (-(1 << (bits - 1)), (1 << (bits - 1)) - 1)


def _power_below(value: int) -> int:
    """Return a bound for a lower end of a range: a power of two below ``value``, or zero.

    A negative one is one below a power of two for the upper end: ``-_power_below(-255)`` is 255.
    """
    if value > 0:
        return 1 << (value.bit_length() - 1)
    return -((1 << (-value).bit_length()) - 1) if value else 0


def _one_digit(value: float, towards: Callable[[float], int]) -> float:
    """Return a number with one significant digit."""
    if not value or not math.isfinite(value):
        return value
    power = 10.0 ** math.floor(math.log10(abs(value)))
    return float(f"{towards(float(f'{value / power:.6g}')) * power:.0e}")


def _and(words: Sequence[str]) -> str:
    return " and ".join([", ".join(words[:-1]), words[-1]] if len(words) > 1 else words)
