"""Generate inputs for the forward method of a model of transformers.

Their sizes come from its configuration. No document says which inputs a model needs, so there are
several choices, the simplest first, and the caller tries them.
"""

from __future__ import annotations

import inspect
import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from .configuration import parts_of

if TYPE_CHECKING:
    import torch

BATCH_SIZE = 2
"""Not 1, because the compiler treats a size of 1 as a special case."""
SEQUENCE_LENGTH = 32
AUDIO_SAMPLES = 16_000


@dataclass(frozen=True)
class InputRecipe:
    """One input, as the arguments of the function that generates it."""

    function: str
    """``randint``, ``randn``, ``ones`` or ``zeros`` of torch."""
    shape: tuple[int, ...]
    high: int = 0
    low: int = 0
    dtype: str = ""
    """``long``, or empty for the model's own."""
    front: tuple[int, int] = (0, 0)
    """A token before the random tokens, and its count: the model replaces them by an image."""

    def make_tensor(self, dtype: torch.dtype) -> torch.Tensor:
        """Generate the input; ``dtype`` is that of the model."""
        import torch

        if self.function == "randint":
            token, count = self.front
            random = torch.randint(self.low, self.high, (self.shape[0], self.shape[1] - count))
            return torch.nn.functional.pad(random, (count, 0), value=token) if count else random
        function: Callable[..., torch.Tensor] = getattr(torch, self.function)
        return function(self.shape, dtype=torch.long if self.dtype else dtype)

    def source_text(self, length: int) -> str:
        """Return the call as source text, with names for the batch and a sequence of ``length``."""
        token, count = self.front
        is_text = self.function == "randint" or bool(self.dtype)
        sizes = [
            "sequence_length" if is_text and s - count == length else str(s) for s in self.shape[1:]
        ]
        shape = f"({', '.join(['batch_size', *sizes])})"
        if self.function == "randint":
            random = f"torch.randint({self.low}, {self.high}, {shape})"
            return (
                f"torch.nn.functional.pad({random}, ({count}, 0), value={token})"
                if count
                else random
            )
        return f"torch.{self.function}({shape}{', dtype=torch.long' if self.dtype else ''})"


class InputMaker:
    """Make recipes for the parameters of one model's forward method."""

    def __init__(self, config: Any, batch_size: int | None, sequence_length: int | None) -> None:
        self._config = config
        self._parts = dict(parts_of(config))
        self.batch = batch_size or BATCH_SIZE
        limit = self._number(
            "text", "max_position_embeddings", "max_target_positions", "n_positions", "seq_length"
        )
        # some configurations reserve two positions for padding
        self.length = sequence_length or min(SEQUENCE_LENGTH, max(1, (limit or 1 << 20) - 2))

    def input_choices(self, model_class: Any) -> Iterator[dict[str, InputRecipe]]:
        """Yield sets of inputs for a class of model, in the order in which to try them."""
        parameters = inspect.signature(model_class.forward).parameters
        required = _required_parameters(model_class)
        main = getattr(model_class, "main_input_name", "input_ids")
        first = [n for n in dict.fromkeys([main, *required]) if n in parameters]
        if getattr(self._config, "is_encoder_decoder", False) and "decoder_input_ids" in parameters:
            first.append("decoder_input_ids")
        if not first:
            first = [n for n in MAIN_INPUTS if n in parameters][:1]
        optional = [n for n in MAIN_INPUTS if n in parameters and n not in first]
        masks = [n for n in MASKS if n in parameters]
        seen: list[list[str]] = []
        for more in (
            [],
            optional[:1],
            optional,
            masks,
            [*optional, *masks],
            *[[n] for n in optional[1:]],
        ):
            names = list(dict.fromkeys([*first, *more]))
            if names in seen:
                continue
            seen.append(names)
            recipes = {n: r for n in names if (r := self.input_recipe(n, model_class)) is not None}
            if recipes and all(n in recipes for n in required):
                yield recipes

    def text_with_image(self, model: Any) -> dict[str, InputRecipe] | None:
        """Return recipes for text with an image, or None if the model does not accept an image."""
        import torch

        token = self._number("", "image_token_id", "image_token_index")
        names = inspect.signature(type(model).forward).parameters
        if (
            not token
            or not hasattr(model, "get_image_features")
            or not {"input_ids", "pixel_values"} <= set(names)
        ):
            return None
        images, tokens = self._images(type(model)), self._tokens()
        if images is None or tokens is None or token >= (self._number("text", "vocab_size") or 0):
            return None
        with torch.no_grad():
            output = model.get_image_features(images.make_tensor(model.dtype))
        output = getattr(output, "pooler_output", output)
        features = list(output) if isinstance(output, (list, tuple)) else [output]
        count = sum(f.numel() // f.shape[-1] for f in features) // self.batch
        shape = (self.batch, count + tokens.shape[1])
        return {
            "input_ids": replace(tokens, shape=shape, front=(token, count)),
            "pixel_values": images,
        }

    def unknown_inputs(self, model_class: Any) -> list[str]:
        """Return the required parameters of the forward method that have no recipe."""
        required = _required_parameters(model_class)
        return [n for n in required if self.input_recipe(n, model_class) is None]

    def input_recipe(self, name: str, model_class: Any) -> InputRecipe | None:
        """Return the recipe for a parameter by its name; None for an unknown name."""
        makers: dict[str, Callable[[], InputRecipe | None]] = {
            "pixel_values": lambda: self._images(model_class),
            "pixel_values_videos": self._video,
            "input_values": self._waveform,
            "input_features": self._spectrogram,
            "input_ids": self._tokens,
            "decoder_input_ids": self._tokens,
            "attention_mask": lambda: InputRecipe("ones", (self.batch, self.length), dtype="long"),
            "decoder_attention_mask": lambda: InputRecipe(
                "ones", (self.batch, self.length), dtype="long"
            ),
            "token_type_ids": lambda: InputRecipe("zeros", (self.batch, self.length), dtype="long"),
            "bbox": lambda: InputRecipe("zeros", (self.batch, self.length, 4), dtype="long"),
            "inputs_embeds": self._embeddings,
            "hidden_states": self._embeddings,
            "past_values": self._series,
        }
        return makers[name]() if name in makers else None

    def _tokens(self) -> InputRecipe | None:
        vocabulary = self._number("text", "vocab_size", "decoder_vocab_size", "codebook_size")
        if not vocabulary:
            return None
        # leave out special tokens, such as padding and images, most of which have the lowest or the
        # highest numbers
        special = {v for part in self._parts.values() for v in _special(part)}
        low, high = 0, vocabulary
        while low in special or low < min(10, vocabulary // 4):
            low += 1
        inner = [s for s in special if low < s < high]
        if inner:
            edges = [low - 1, *sorted(inner), high]
            low, high = max(
                ((a + 1, b) for a, b in itertools.pairwise(edges)), key=lambda e: e[1] - e[0]
            )
        return InputRecipe("randint", (self.batch, self.length), high, low)

    def _embeddings(self) -> InputRecipe | None:
        size = self._number("text", "hidden_size", "d_model", "n_embd", "dim")
        return InputRecipe("randn", (self.batch, self.length, size)) if size else None

    def _images(self, kind: Any) -> InputRecipe | None:
        size = self._get("vision", "image_size", "img_size", "input_size", "crop_size")
        if isinstance(size, dict):
            size = [size.get("height", 224), size.get("width", 224)]
        if isinstance(size, (list, tuple)):
            size = [int(s) for s in size[-2:]] * (2 if len(size) == 1 else 1)
        else:
            size = [int(size or 224)] * 2
        channels = (
            self._number("vision", "num_channels", "in_channels", "in_chans", "num_input_channels")
            or 3
        )
        if frames := self._number("vision", "num_frames", "frames_per_clip"):
            return InputRecipe("randn", (self.batch, frames, channels, *size))
        return InputRecipe("randn", (self.batch, channels, *size))

    def _video(self) -> InputRecipe | None:
        image = self._images(None)
        if image is None or len(image.shape) == 5:
            return image
        return InputRecipe(
            "randn",
            (
                self.batch,
                2 * (self._number("vision", "temporal_patch_size") or 1),
                *image.shape[1:],
            ),
        )

    def _waveform(self) -> InputRecipe | None:
        bins, longest = self._number("audio", "num_mel_bins"), self._number("audio", "max_length")
        if bins and longest:
            return InputRecipe("randn", (self.batch, longest, bins))
        channels = self._number("audio", "audio_channels", "n_channels")
        shape = (channels, AUDIO_SAMPLES) if channels else (AUDIO_SAMPLES,)
        return InputRecipe("randn", (self.batch, *shape))

    def _spectrogram(self) -> InputRecipe | None:
        bins = self._number(
            "audio",
            "num_mel_bins",
            "input_feat_per_channel",
            "feature_projection_input_dim",
            "n_mels",
        )
        if not bins:
            return None
        longest = self._number("audio", "max_source_positions")
        if self._number("audio", "num_mel_bins") and longest:
            # two convolutions, the second of stride 2
            return InputRecipe("randn", (self.batch, bins, 2 * longest))
        return InputRecipe("randn", (self.batch, 4 * self.length, bins))

    def _series(self) -> InputRecipe | None:
        length, channels = (
            self._number("", "context_length"),
            self._number("", "num_input_channels", "input_size"),
        )
        return InputRecipe("randn", (self.batch, length, channels or 1)) if length else None

    def _number(self, kind: str, *names: str) -> int | None:
        value = self._get(kind, *names)
        return value if type(value) is int and value > 0 else None

    def _get(self, kind: str, *names: str) -> Any:
        """Return the first of these fields that the configuration has.

        The part for the ``kind`` of data comes first, then the outermost configuration.
        """
        order = sorted(
            self._parts.items(), key=lambda item: (kind not in "".join(item[0]), len(item[0]))
        )
        for _, part in order:
            for name in names:
                value = getattr(part, name, None)
                if value is not None:
                    return value
        return None


MAIN_INPUTS = (
    "input_ids pixel_values input_features input_values pixel_values_videos decoder_input_ids bbox"
    " past_values inputs_embeds hidden_states"
).split()
MASKS = ["attention_mask", "token_type_ids"]


def _special(config: Any) -> Iterator[int]:
    for name, value in vars(config).items():
        if name.endswith(("_token_id", "_token_index", "_token_ids")):
            for token in value if isinstance(value, (list, tuple)) else [value]:
                if type(token) is int:
                    yield token


def _required_parameters(model_class: Any) -> list[str]:
    """Return the parameters of the forward method, without ``self``, that have no default."""
    parameters = list(inspect.signature(model_class.forward).parameters.items())[1:]
    return [n for n, p in parameters if p.default is p.empty and p.kind is p.POSITIONAL_OR_KEYWORD]
