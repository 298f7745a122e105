"""Stacks of all tools are converted to one form."""

from __future__ import annotations

import pytest

from reprokit.core.judge.stacks import frames as fr
from reprokit.core.judge.stacks import phases
from reprokit.core.records.dumps import Frame

V = "/opt/v/lib/python3.11/site-packages/"


@pytest.mark.parametrize(
    ("file", "normal"),
    [
        (V + "torch/_inductor/lowering.py", "torch/_inductor/lowering.py"),
        ("/usr/lib/python3/dist-packages/torch/fx/graph.py", "torch/fx/graph.py"),
        ("/work/pytorch/torch/_dynamo/guards.py", "torch/_dynamo/guards.py"),
        ("/usr/lib/python3.12/threading.py", "<stdlib>/threading.py"),
        ("/tmp/torchinductor_bob/ab/cabc.py", "<generated>"),
        ("/x/hr/chrf36zexf6tocxzwaw5axb575c4z7tnyhhpqg2jpqix6fn5rwcg.main.cpp", "<generated>"),
        ("<eval_with_key>.12", "<generated>"),
        ("<frozen importlib._bootstrap>", "<frozen>"),
        ("/run/agent/_reprokit/agent/torch_hooks/phases_and_graphs.py", "<agent>"),
        ("/home/bob/train.py", "<user>"),
    ],
)
def test_files_are_the_same_on_every_machine(file: str, normal: str) -> None:
    """The location of Python, torch and the cache is not part of a bug."""
    assert fr.normalise_file(file) == normal


FATAL = f"""Fatal Python error: Segmentation fault

Thread 0x00007f623ce546c0 (most recent call first):
  File "/usr/lib/python3.11/threading.py", line 982 in run

Current thread 0x00007f62629fab80 (most recent call first):
  File "/tmp/torchinductor_bob/mj/cm.py", line 130 in call
  File "{V}torch/_inductor/output_code.py", line 763 in __call__
  File "{V}torch/_dynamo/eval_frame.py", line 1446 in _fn
  File "/home/bob/x.py", line 15 in fn
  File "{V}torch/_dynamo/eval_frame.py", line 1166 in compile_wrapper
  File "/home/bob/x.py", line 5 in <module>

Extension modules: numpy, torch._C (total: 20)
"""


def test_a_fatal_error_gives_the_thread_that_died() -> None:
    """The text of faulthandler after a crash is parsed, with the frames that identify the crash."""
    fault = fr.parse_fatal(FATAL, 7)
    assert fault is not None
    assert fault.headline == "Segmentation fault"
    kept, _ = fr.RULES.significant_frames(fr.normalise_frames(fault.frames), 3)
    assert [fr.show_frame(f) for f in kept] == ["<generated>:call"]
    phase = phases.phase_of_frames(fr.normalise_frames(fault.frames))
    assert phase is not None and phase[0] == "kernel-run"


def test_a_truncated_fatal_error_is_still_reported() -> None:
    """A second abort can truncate the dump of the first."""
    assert fr.parse_fatal("Fatal Python error: ", 7) is not None
    assert fr.parse_fatal("", 7) is None


@pytest.mark.parametrize(
    "text",
    [
        "terminate called after throwing an instance of 'std::runtime_error'\n  what():  index",
        (
            "terminate called after throwing an instance of 'std::runtime_error'\nterminate called"
            " recursively\n  what():  index"
        ),
        (
            "terminate called after throwing an instance of 'terminate called"
            " recursively\nstd::runtime_error'\n  what():  index"
        ),
        (
            "terminate called after throwing an instance of 'terminate called after throwing an"
            " instance of 'std::runtime_error'\nstd::runtime_error'\n  what():  index"
        ),
    ],
)
def test_the_message_of_the_runtime_survives_interleaving(text: str) -> None:
    """Two OpenMP threads may abort at once and interleave their output; the message may then be
    lost.
    """
    is_race = "recursively" in text
    message = "std::runtime_error" if is_race else "std::runtime_error: index out of bounds"
    assert fr.parse_terminate(text + " out of bounds\n") == message
    lost = (
        "terminate called after throwing an instance of 'std::runtime_error'\nterminate called"
        " recursively\n"
    )
    assert not is_race or fr.parse_terminate(lost) == message
    cut = "terminate called after throwing an instance of 'terminate called recursively\n"
    assert fr.parse_terminate(cut) == "std::terminate"


def test_main_thread_of_a_dump() -> None:
    """The main thread is found by its outermost frame, whatever its position in the dump."""
    threads = fr.parse_faulthandler(FATAL, 7)
    assert [t.is_main for t in threads] == [False, True]


def test_py_spy_json() -> None:
    """The threads and frames of py-spy are parsed, and any other JSON raises ValueError."""
    text = (
        '[{"pid": 5, "os_thread_id": 5, "thread_name": "MainThread", "owns_gil": true, "frames":'
        ' [{"name": "f", "filename": "a.py", "line": 3}]}]'
    )
    (thread,) = fr.parse_py_spy(text, 5)
    assert thread.is_main and thread.owns_gil and thread.frames == (Frame("a.py", "f", 3),)
    with pytest.raises(ValueError):
        fr.parse_py_spy("{}", 5)


def test_stable_part_is_what_all_dumps_share() -> None:
    """Stacks are compared from the outermost frame inward."""
    a = [Frame("t", "leaf1"), Frame("t", "loop"), Frame("t", "main")]
    b = [Frame("t", "leaf2"), Frame("t", "loop", 9), Frame("t", "main")]
    assert [f.function for f in fr.stable_part([a, b])] == ["loop", "main"]
    assert fr.stable_part([]) == ()


def test_the_last_traceback_of_a_text() -> None:
    """The last traceback is used for exceptions that no hook reported: raised before torch was
    imported, or with a different excepthook.
    """
    text = (
        'Traceback (most recent call last):\n  File "a.py", line 1, in <module>\nKeyError:'
        " 'x'\n\nDuring handling of the above exception, another exception occurred:\n\nTraceback"
        ' (most recent call last):\n  File "a.py", line 3, in <module>\n    f()\n    ^^^\n  File'
        ' "b.py", line 7, in f\n    raise ValueError("no: way")\nValueError: no: way\nbye\n'
    )
    link = fr.parse_traceback(text)
    assert link is not None
    assert (link.type, link.message, link.frames[0].function) == ("ValueError", "no: way", "f")
    of_rank = "".join(f"[rank1]: {line}" for line in text.splitlines(keepends=True))
    assert fr.parse_traceback(of_rank) == link
    assert fr.parse_traceback("nothing here") is None


def test_a_folder_named_pyenv_does_not_end_the_name_of_a_module() -> None:
    """Lines of two threads that crash at once mix; the path of a whole line stays as it is."""
    whole = "/root/.pyenv/versions/3.11.7/lib/python3.11/threading.py"
    for name, expected in (
        (whole, Frame(whole, "wait", 327)),
        ("/a/b.pyx", Frame("/a/b.pyx", "wait", 327)),
        ("<string>", Frame("<string>", "wait", 327)),
        ("/a/b.py, line   File", Frame("/a/b.py", "<torn>", 327)),
    ):
        text = f'Current thread 0x1 (most recent call first):\n  File "{name}", line 327 in wait\n'
        assert fr.parse_faulthandler(text, 7)[0].frames == (expected,)
