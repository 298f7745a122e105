"""Example inputs for a model of transformers: what its forward method takes, in the sizes of its
configuration.

Which of them a model needs is not written down anywhere, so several choices are given, plain ones
first, for a trial run to pick from.
"""

from __future__ import annotations

import inspect
import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from .configuration import parts_of

BATCH_SIZE = 2
"""Not 1, which the compiler would treat as a special case."""
SEQUENCE_LENGTH = 32
LONGEST_AUDIO = 16_000


@dataclass(frozen=True)
class InputRecipe:
    """How one input is made, so that it can be made again in a script."""

    function: str
    """``randint``, ``randn``, ``ones`` or ``zeros`` of torch."""
    shape: tuple[int, ...]
    high: int = 0
    low: int = 0
    dtype: str = ""
    """``long``, or empty for the model's own."""
    front: tuple[int, int] = (0, 0)
    """A token that stands before the random ones, and how often: where the features of an image
    go.
    """

    def make(self, torch: Any, dtype: Any) -> Any:
        """The tensor."""
        if self.function == "randint":
            token, count = self.front
            random = torch.randint(self.low, self.high, (self.shape[0], self.shape[1] - count))
            return torch.nn.functional.pad(random, (count, 0), value=token) if count else random
        return getattr(torch, self.function)(self.shape, dtype=torch.long if self.dtype else dtype)

    def text(self, length: int) -> str:
        """The same as source, in which the batch and a sequence of ``length`` have names."""
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
    """Makes recipes for the parameters of one model's forward method."""

    def __init__(self, config: Any, batch_size: int | None, sequence_length: int | None) -> None:
        self._config = config
        self._parts = dict(parts_of(config))
        self.batch = batch_size or BATCH_SIZE
        limit = self._number(
            "text", "max_position_embeddings", "max_target_positions", "n_positions", "seq_length"
        )
        # some configurations keep two positions for padding
        self.length = sequence_length or min(SEQUENCE_LENGTH, max(1, (limit or 1 << 20) - 2))

    def choices(self, kind: Any) -> Iterator[dict[str, InputRecipe]]:
        """Sets of inputs for a class of model, in the order in which they are tried."""
        taken = inspect.signature(kind.forward).parameters
        needed = [
            n
            for n, p in taken.items()
            if p.default is p.empty and p.kind is p.POSITIONAL_OR_KEYWORD
        ][1:]
        main = getattr(kind, "main_input_name", "input_ids")
        first = [n for n in dict.fromkeys([main, *needed]) if n in taken]
        if getattr(self._config, "is_encoder_decoder", False) and "decoder_input_ids" in taken:
            first.append("decoder_input_ids")
        if not first:
            first = [n for n in MAIN if n in taken][:1]
        several = [n for n in MAIN if n in taken and n not in first]
        masks = [n for n in MASKS if n in taken]
        seen: list[list[str]] = []
        for more in (
            [],
            several[:1],
            several,
            masks,
            [*several, *masks],
            *[[n] for n in several[1:]],
        ):
            names = list(dict.fromkeys([*first, *more]))
            if names in seen:
                continue
            seen.append(names)
            made = {n: r for n in names if (r := self.recipe(n, kind)) is not None}
            if made and all(n in made for n in needed):
                yield made

    def with_image(self, torch: Any, model: Any) -> dict[str, InputRecipe] | None:
        """Text with an image in it, where the model says how many tokens the features of one
        take.
        """
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
            found = model.get_image_features(images.make(torch, model.dtype))
        found = getattr(found, "pooler_output", found)
        features = list(found) if isinstance(found, (list, tuple)) else [found]
        count = sum(f.numel() // f.shape[-1] for f in features) // self.batch
        shape = (self.batch, count + tokens.shape[1])
        return {
            "input_ids": replace(tokens, shape=shape, front=(token, count)),
            "pixel_values": images,
        }

    def unknown(self, kind: Any) -> list[str]:
        """Parameters that the forward method needs and that nothing here can make."""
        taken = list(inspect.signature(kind.forward).parameters.items())[1:]
        needed = [n for n, p in taken if p.default is p.empty and p.kind is p.POSITIONAL_OR_KEYWORD]
        return [n for n in needed if self.recipe(n, kind) is None]

    def recipe(self, name: str, kind: Any) -> InputRecipe | None:
        """One input by the name of its parameter; None for a name that says nothing."""
        makers: dict[str, Callable[[], InputRecipe | None]] = {
            "pixel_values": lambda: self._images(kind),
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
        # neither padding nor a place for an image: those have numbers of their own, most of them at
        # an end
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
        shape = (channels, LONGEST_AUDIO) if channels else (LONGEST_AUDIO,)
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
            return InputRecipe(
                "randn", (self.batch, bins, 2 * longest)
            )  # two convolutions, the second of stride 2
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
        """The first of these fields that there is: in the part for this kind of data, then at the
        top, then anywhere.
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


MAIN = (
    "input_ids pixel_values input_features input_values pixel_values_videos decoder_input_ids bbox"
    " past_values inputs_embeds hidden_states"
).split()
MASKS = ["attention_mask", "token_type_ids"]


def _special(config: Any) -> Iterator[int]:
    for name, value in vars(config).items():
        if name.endswith(("_token_id", "_token_index", "_token_ids")):
            for one in value if isinstance(value, (list, tuple)) else [value]:
                if type(one) is int:
                    yield one
