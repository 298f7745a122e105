"""Interrupts are heard where a step can be given up, and never lost.

SIGTERM stands for all: SIGINT and SIGHUP may be ignored where the tests themselves run in the background.
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
    """Python only prints what is raised in ``__del__``; the next look finds the interrupt still waiting."""
    with interrupts.held(), pytest.raises(KeyboardInterrupt), interrupts.heard():
        Dies()
        interrupts.check()
        warnings.warn("the interrupt was lost", stacklevel=1)


def test_what_was_caught_is_not_raised_twice() -> None:
    """One Ctrl-C gives up one step."""
    with interrupts.held():
        with pytest.raises(KeyboardInterrupt), interrupts.heard():
            os.kill(os.getpid(), signal.SIGTERM)
        with interrupts.heard():
            interrupts.check()


def test_a_clean_up_is_not_given_up() -> None:
    """An interrupt inside a clean-up waits until the block that hears it."""
    done = False
    with interrupts.held(), pytest.raises(KeyboardInterrupt), interrupts.heard():
        with interrupts.unheard():
            os.kill(os.getpid(), signal.SIGTERM)
            interrupts.check()
            done = True
        interrupts.check()
    assert done
