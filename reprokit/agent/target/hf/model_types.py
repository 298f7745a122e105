"""What ``reprokit models hf:`` wants to know of the transformers in this interpreter."""

from __future__ import annotations

import contextlib
import os
import sys
from typing import Any

from ....core.shared.errors import BadTarget
from . import build_model, configuration


def answer_models(spec: dict[str, Any]) -> dict[str, Any]:
    """All model types, or one with its knobs; what is wrong stands under ``refused``."""
    if sys.path and os.path.abspath(sys.path[0]) == os.getcwd():
        del sys.path[0]  # -m put the working directory there
    try:
        with contextlib.redirect_stdout(
            sys.stderr
        ):  # whatever the library prints is not the answer
            return _ask(str(spec["place"]), str(spec["name"]))
    except BadTarget as bad:
        return {"refused": str(bad)}


def _ask(place: str, name: str) -> dict[str, Any]:
    library = configuration.load_transformers()
    if not place and not name:
        return {"transformers": library.__version__, "types": build_model.model_types_of(library)}
    import torch

    return build_model.about_model(torch, build_model.plan_model(library, place, name, {}))
