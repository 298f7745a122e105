"""Interrupts are raised where a step can be abandoned, and are never lost.

SIGTERM represents all of them: SIGINT and SIGHUP may be ignored if the tests themselves run in the
background.
"""

import os
import signal
import warnings

import pytest

from reprokit.host.system import interrupts


class Dies:
    def __del__(self) -> None:
        os.kill(os.getpid(), signal.SIGTERM)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_an_interrupt_that_a_finalizer_swallows_is_raised_again() -> None:
    """Python only prints an exception that is raised in ``__del__``; the next check raises the
    pending interrupt.
    """
    with interrupts.deferred(), pytest.raises(KeyboardInterrupt), interrupts.allowed():
        Dies()
        interrupts.raise_if_interrupted()
        warnings.warn("the interrupt was lost", stacklevel=1)


def test_a_caught_interrupt_is_not_raised_twice() -> None:
    """One Ctrl-C abandons one step."""
    with interrupts.deferred():
        with pytest.raises(KeyboardInterrupt), interrupts.allowed():
            os.kill(os.getpid(), signal.SIGTERM)
        with interrupts.allowed():
            interrupts.raise_if_interrupted()


def test_a_clean_up_is_not_abandoned() -> None:
    """An interrupt inside a clean-up is raised in the block after it."""
    done = False
    with interrupts.deferred(), pytest.raises(KeyboardInterrupt), interrupts.allowed():
        with interrupts.blocked():
            os.kill(os.getpid(), signal.SIGTERM)
            interrupts.raise_if_interrupted()
            done = True
        interrupts.raise_if_interrupted()
    assert done
