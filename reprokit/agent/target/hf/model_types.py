"""Answer ``reprokit models hf:`` from the transformers of this interpreter."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Mapping

from ....core.shared.errors import BadTarget
from . import build_model, configuration


def answer_models(request: Mapping[str, str]) -> dict[str, object]:
    """Return all model types, or one type with its fields, as JSON values.

    ``request`` has the keys ``place`` and ``name``. If the type cannot be used, the key ``refused``
    of the result says why.
    """
    try:
        # stdout is only for the answer, and the library may print
        with contextlib.redirect_stdout(sys.stderr):
            return _describe_models(str(request["place"]), str(request["name"]))
    except BadTarget as bad:
        return {"refused": str(bad)}


def _describe_models(place: str, name: str) -> dict[str, object]:
    library = configuration.load_transformers()
    if not place and not name:
        return {"transformers": library.__version__, "types": build_model.model_types_of(library)}
    return build_model.describe_model(build_model.plan_model(library, place, name, {}))
