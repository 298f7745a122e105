"""What the shell offers after the TAB key: packs, run directories, targets and GPUs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from click.shell_completion import CompletionItem

OUTPUT_FOLDER = "reprokit-out"
PACK_SUFFIX = ".tar.gz"
MAX_ITEMS = 200


def complete_files(incomplete: str) -> list[CompletionItem[str]]:
    """Let the shell complete the name of a file."""
    return [CompletionItem(incomplete, type="file")]


def complete_gpus(incomplete: str) -> list[CompletionItem[str]]:
    """Return the GPUs that can be simulated, or let the shell complete a file."""
    from reprokit.core.shared.simulation import GPUS

    return _items([name for name in GPUS if name.startswith(incomplete)], incomplete)


def complete_targets(incomplete: str, takes_packs: bool = False) -> list[CompletionItem[str]]:
    """Return the models of the zoo, and with ``takes_packs`` packs.

    If none of these matches, the shell completes a file.
    """
    from reprokit.core.shared.zoo import ZOO

    names = [name for name in ZOO if name.startswith(incomplete)]
    if takes_packs:
        names += _paths(incomplete, _is_pack)
    return _items(names, incomplete)


def complete_packs(incomplete: str) -> list[CompletionItem[str]]:
    """Return the packs and folders that match; without a word, also the packs of captures."""
    return _items(_paths(incomplete, _is_pack), incomplete)


def complete_runs(incomplete: str) -> list[CompletionItem[str]]:
    """Return the folders that match; without a word, also the run directories of captures."""
    return _items(_paths(incomplete, _is_run), incomplete)


def _items(names: list[str], incomplete: str) -> list[CompletionItem[str]]:
    items = [CompletionItem(name) for name in dict.fromkeys(names)]
    return items[:MAX_ITEMS] or complete_files(incomplete)


def _is_pack(path: Path) -> bool:
    return path.name.endswith(PACK_SUFFIX)


def _is_run(path: Path) -> bool:
    return path.name.startswith("run-") and path.is_dir()


def _paths(incomplete: str, is_wanted: Callable[[Path], bool]) -> list[str]:
    """Return the wanted paths that begin with the word, and the folders beside them.

    Without a word, the wanted paths in ``reprokit-out`` come first. If there are only folders, the
    result is empty: the shell completes them better, without a space behind them.
    """
    start, _, name = incomplete.rpartition("/")
    folder = Path(start or ("/" if incomplete.startswith("/") else ".")).expanduser()
    before = incomplete[: len(incomplete) - len(name)]
    found, folders = [], []
    if not incomplete:
        found = [str(p) for p in sorted(Path(OUTPUT_FOLDER).glob("*/*")) if is_wanted(p)]
    try:
        entries = sorted(folder.iterdir())
    except OSError as problem:
        from reprokit.host.system import host_log

        host_log.log_ignored(problem)
        return found
    for path in entries:
        if path.name.startswith(name) and (name or not path.name.startswith(".")):
            if is_wanted(path):
                found.append(before + path.name)
            elif path.is_dir():
                folders.append(f"{before}{path.name}/")
    return [*found, *folders] if found else []
