"""Run the target again with the caches that its first run filled.

Each stage is a run in a new process, with its own copy of a cache folder, so that a stage changes
neither the cache of the user nor that of another stage. The results of a stage are compared with
those of a fresh compile with the same settings.
"""

from __future__ import annotations

import dataclasses
import json
import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from reprokit.core.judge.verdict import judge_run
from reprokit.core.records.caches import cache_stages as records
from reprokit.core.records.caches import cache_uses
from reprokit.core.records.observation import Missing, Observation
from reprokit.core.shared.contract import run_names
from reprokit.core.shared.contract.cache_events import CacheUsed
from reprokit.host.experiments import cache_files
from reprokit.host.probe.candidate import role_variables
from reprokit.host.request.run_request import Request
from reprokit.host.run import missing_evidence, observation_reader, run_directory, supervise
from reprokit.host.run.observation_reader import Journals
from reprokit.host.run.run_directory import RESULTS_FOLDER
from reprokit.host.system import compiler_cache, deletion, host_log

DEFAULT_CHANGE = {"torch._inductor.config.epilogue_fusion": "False"}
"""A setting that must change the key of each graph."""
ARTIFACTS_FILE = "artifacts"
MAX_COPIED_BYTES = 4 << 30
"""A larger cache folder of the user is not copied."""
UNREADABLE = "full_miss"
"""What torch reports of a key without a readable entry."""
REFERENCE = "reference"
"""The stage ``changed`` without the cache of the first run."""
WRITER = "writer"
"""The run that fills the cache of the stage ``precompiled``."""
PRECOMPILE = {"TORCH_CACHING_PRECOMPILE": "1"}
"""With this variable torch also keeps the code and the guards of Dynamo."""


def request_of_first_run(request: Request, run_path: Path) -> Request:
    """Return the request, changed so that its run leaves its cache and its artifacts."""
    if not request.checks_caches:
        return request
    folder = run_path / run_names.CACHES_FOLDER
    folder.mkdir(exist_ok=True)
    changed = _with_cache(request, folder / records.COLD)
    return (
        changed
        if request.target.kind == "command"
        else dataclasses.replace(changed, save_artifacts=str(folder / ARTIFACTS_FILE))
    )


def delete_caches(run_path: Path) -> None:
    """Delete the caches and the artifacts of all stages."""
    folder = run_path / run_names.CACHES_FOLDER
    for name in (*records.STAGE_WORDS, REFERENCE, WRITER):
        deletion.delete_path(folder / name, inside=run_path)
        deletion.delete_path(folder / f"run-{name}" / RESULTS_FOLDER, inside=run_path)
    deletion.delete_path(folder / ARTIFACTS_FILE, inside=run_path)


def compare_caches(
    request: Request,
    seen: Observation,
    journals: Journals,
    run_path: Path,
    missing: list[Missing],
    show: supervise.Show | None,
) -> Observation:
    """Return the observation of the first stage that fails, or ``seen`` with all stages.

    Add to ``missing`` which stages did not run.

    Raises:
        KeyboardInterrupt: the user interrupted a stage.
    """
    runner = _StageRunner(request, seen, journals, run_path, missing, show)
    try:
        for name in records.STAGE_WORDS:
            if name == records.COLD:
                runner.note_first_run()
            elif why := runner.why_not(name):
                missing.append(Missing(f"stage {name}", why))
            elif name != records.OWN or runner.own_folder:
                failing = runner.run_stage(name)
                if failing is not None:
                    return failing
        return dataclasses.replace(seen, stages=tuple(runner.stages))
    finally:
        delete_caches(run_path)


@dataclass(frozen=True)
class _StagePlan:
    """What one stage runs."""

    request: Request
    source: Path | None
    """The cache folder that is copied for it; None for an empty cache."""
    reference: Path
    """The results of a fresh compile with the same settings."""
    wrote: tuple[CacheUsed, ...] = ()
    """The look-ups and writes of the process that filled the cache."""
    settings: tuple[str, ...] = ()


class _StageRunner:
    """Runs the stages after the first run of a target."""

    def __init__(
        self,
        request: Request,
        seen: Observation,
        journals: Journals,
        run_path: Path,
        missing: list[Missing],
        show: supervise.Show | None,
    ) -> None:
        self._request, self._seen, self._run_path = request, seen, run_path
        self._folder = run_path / run_names.CACHES_FOLDER
        self._missing, self._show = missing, show
        self._wrote = journals.events_of_type(CacheUsed)
        named = os.environ.get("TORCHINDUCTOR_CACHE_DIR", "")
        self.own_folder = Path(named) if named and Path(named).is_dir() else None
        self.stages: list[records.CacheStage] = []

    def note_first_run(self) -> None:
        """Add the row of the first run, which found an empty cache."""
        seen, uses = self._seen, cache_uses.count_uses(self._wrote)
        self.stages.append(
            records.CacheStage(records.COLD, "ok", seen.seconds, seen.cpu_s, dict(uses))
        )

    def why_not(self, name: str) -> str:
        """Return why a stage cannot run; empty if it can."""
        is_command = self._request.target.kind == "command"
        if name == records.OWN and self.own_folder and not _is_small(self.own_folder):
            return f"the cache folder of the environment has more than {MAX_COPIED_BYTES >> 30} GiB"
        if name in (records.LOADED, records.PRECOMPILED) and is_command:
            return "reprokit cannot change what a command saves and loads"
        if name == records.CHANGED and is_command and not self._request.cache_change:
            return "name the setting to change with --cache-change"
        artifacts = self._folder / ARTIFACTS_FILE
        if name == records.LOADED and not (artifacts.is_file() and artifacts.stat().st_size):
            return "torch saved no artifacts"
        return ""

    def run_stage(self, name: str) -> Observation | None:
        """Run one stage; return its observation if it fails."""
        plan = self._prepare(name)
        if plan is None:
            return None
        cache = self._folder / name
        if plan.source is not None:
            shutil.copytree(plan.source, cache, symlinks=True)
        damaged, stored = cache_files.damaged_files(cache), cache_files.stored_keys(cache)
        if name == records.LOADED:
            stored = cache_uses.stored_keys(plan.wrote)
        request = dataclasses.replace(plan.request, stage=name)
        seen, uses = self._run(name, request, cache, plan.reference)
        if name != records.CHANGED:
            graphs = sum(graph.level == "dynamo" for graph in seen.graphs)
            missed = cache_uses.missed_entries(stored, plan.wrote, uses)
            missed += cache_uses.unused_precompiled_code(uses, graphs)
            if name == records.OWN:  # a guard of an entry of a different program may fail
                missed = tuple(entry for entry in missed if entry.detail == UNREADABLE)
            seen = dataclasses.replace(seen, missed=missed)
        verdict = judge_run(seen)
        self.stages.append(
            records.CacheStage(
                name,
                verdict.kind,
                seen.seconds,
                seen.cpu_s,
                cache_uses.count_uses(uses),
                plan.settings,
                damaged if verdict.kind != "ok" else (),
            )
        )
        if verdict.kind == "ok":
            return None
        first = self._seen
        return dataclasses.replace(
            seen,
            stages=tuple(self.stages),
            graphs=first.graphs,
            own_backend=first.own_backend,
            own_passes=first.own_passes,
        )

    def _prepare(self, name: str) -> _StagePlan | None:
        """Return what a stage needs; None if a fresh compile with its settings fails too."""
        usual = _StagePlan(
            self._request,
            self._folder / records.COLD,
            self._run_path / RESULTS_FOLDER,
            tuple(self._wrote),
        )
        if name == records.OWN:
            return dataclasses.replace(usual, source=self.own_folder, wrote=())
        if name == records.LOADED:
            artifacts = str(self._folder / ARTIFACTS_FILE)
            request = dataclasses.replace(self._request, load_artifacts=artifacts)
            return dataclasses.replace(usual, request=request, source=None)
        if name == records.CHANGED:
            request, settings = self._with_change()
            fresh = self._run_fresh(name, REFERENCE, request)
            return fresh and dataclasses.replace(fresh, source=usual.source, settings=settings)
        if name == records.PRECOMPILED:
            variables = {**self._request.variables, **PRECOMPILE}
            return self._run_fresh(
                name, WRITER, dataclasses.replace(self._request, variables=variables)
            )
        return usual

    def _run_fresh(self, stage: str, name: str, request: Request) -> _StagePlan | None:
        """Run the target with an empty cache; return the plan of a stage that reads this cache."""
        cache = self._folder / name
        cache.mkdir()
        saves = str(cache / ARTIFACTS_FILE) if name == WRITER else ""
        writer = dataclasses.replace(request, save_artifacts=saves)
        seen, uses = self._run(name, writer, cache, None)
        verdict = judge_run(seen)
        if verdict.kind != "ok":
            why = f"a fresh compile fails too: {verdict.reason}"
            self._missing.append(Missing(f"stage {stage}", why))
            return None
        results = self._folder / f"run-{name}" / RESULTS_FOLDER
        return _StagePlan(request, cache, results, tuple(uses))

    def _with_change(self) -> tuple[Request, tuple[str, ...]]:
        request = self._request
        python = request.cache_python
        change = request.cache_change or ({} if python else DEFAULT_CHANGE)
        # the value of an environment variable may be private
        shown = tuple(f"{n}={v}" if "." in n else n for n, v in change.items())
        changed = dataclasses.replace(
            request,
            variables={**request.variables, **variables_of_change(change)},
            python=python or request.python,
        )
        return changed, (*shown, *((f"--python {python}",) if python else ()))

    def _run(
        self, name: str, request: Request, cache: Path, reference: Path | None
    ) -> tuple[Observation, list[CacheUsed]]:
        """Run the target with a cache folder; compare its results with those in ``reference``."""
        folder = self._folder / f"run-{name}"
        run_directory.make_folders(folder)
        for path in reference.rglob("compiled.pt") if reference is not None else ():
            place = folder / RESULTS_FOLDER / path.parent.relative_to(reference or path)
            place.mkdir(parents=True, exist_ok=True)
            shutil.copy2(path, place / "eager.pt")
        is_random = self._seen.comparison is not None and self._seen.comparison.is_random
        roles = {} if is_random else role_variables("compiled", folder)
        request = _with_cache(request, cache)
        request = dataclasses.replace(
            request, has_trace=False, variables={**request.variables, **roles}
        )
        outcome = supervise.run_target_once(request, folder, self._show)
        if outcome.is_interrupted:
            raise KeyboardInterrupt
        journals = observation_reader.read_journals(folder)
        if name == REFERENCE:  # such as a setting that torch does not have
            rows = missing_evidence.find_missing(journals, folder, request)
            self._missing += [row for row in rows if row not in self._missing]
        seen = observation_reader.read_observation(request, outcome, folder, journals)
        return seen, journals.events_of_type(CacheUsed)


def variables_of_change(change: Mapping[str, str]) -> dict[str, str]:
    """Return the environment variables that change settings.

    A name with a dot is a setting of torch, any other an environment variable.
    """
    configs = {name: _setting(text) for name, text in change.items() if "." in name}
    plain = {name: text for name, text in change.items() if "." not in name}
    overrides = {run_names.OVERRIDES_VARIABLE: json.dumps({"configs": configs})} if configs else {}
    return {**plain, **overrides}


def _setting(text: str) -> Any:
    """Return the value of a setting: a JSON value or a name of Python, or else the text."""
    words = {"True": True, "False": False, "None": None}
    with host_log.suppress(ValueError):
        return words[text] if text in words else json.loads(text)
    return text


def _is_small(folder: Path) -> bool:
    size = 0
    for path in folder.rglob("*"):
        with host_log.suppress(OSError):
            size += path.lstat().st_size
        if size > MAX_COPIED_BYTES:
            return False
    return True


def _with_cache(request: Request, cache: Path) -> Request:
    cache = compiler_cache.plain_path(cache)
    own = {
        "TORCHINDUCTOR_CACHE_DIR": str(cache),
        "TRITON_CACHE_DIR": str(cache / "triton"),
        run_names.CACHES_VARIABLE: "1",
    }
    return dataclasses.replace(request, variables={**request.variables, **own})
