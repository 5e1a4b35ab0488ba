"""Plays the episodes of an evaluation in a process of its own: they take seconds, and may hang."""

import os
import pickle
import subprocess
import sys
import threading
import weakref
from contextlib import suppress
from typing import IO

import numpy as np
from numpy.typing import NDArray

from edgeflock.server.evaluation.model_scores import ModelScores
from edgeflock.shared.settings.model import ModelSettings

TIMEOUT = 900.0
"""The maximum seconds of an evaluation."""


class EpisodeProcess:
    """Judges policies in another process. It starts with the first policy and ends with this process."""

    def __init__(self, model: ModelSettings) -> None:
        self._model = model
        self._process: subprocess.Popen[bytes] | None = None

    def evaluate(self, theta: NDArray[np.float32]) -> ModelScores:
        """Evaluate as `EpisodeScores` does. Raises RuntimeError if the process fails."""
        process = self._start()
        assert process.stdin is not None, "it is a pipe"
        assert process.stdout is not None, "it is a pipe"
        timer = threading.Timer(TIMEOUT, process.kill)
        timer.daemon = True
        timer.start()
        try:
            _send(process.stdin, theta)
            answer: ModelScores | str = pickle.load(process.stdout)
        except Exception as error:  # it has ended, or something else wrote to its pipe
            killed = not timer.is_alive()
            self._end()
            reason = f"took longer than {TIMEOUT:g} s" if killed else "ended; the log says why"
            raise RuntimeError(f"the process that plays episodes of {self._model.data} {reason}") from error
        finally:
            timer.cancel()
        if isinstance(answer, str):
            raise RuntimeError(answer)
        return answer

    def _start(self) -> "subprocess.Popen[bytes]":
        if self._process is None or self._process.poll() is not None:
            self._end()
            path = os.pathsep.join(entry or os.getcwd() for entry in sys.path)
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-c", f"from {__name__} import serve; serve()"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                start_new_session=True,
                env={**os.environ, "PYTHONPATH": path},
            )
            weakref.finalize(self, _end, self._process)
            assert self._process.stdin is not None, "it is a pipe"
            with suppress(OSError):  # it has ended: the next read raises
                _send(self._process.stdin, self._model)
        return self._process

    def _end(self) -> None:
        if self._process is not None:
            _end(self._process)
            self._process = None


def _end(process: "subprocess.Popen[bytes]") -> None:
    process.kill()
    with suppress(OSError, ValueError):  # its pipe is broken, or closed
        process.communicate()


def _send(stream: IO[bytes], value: object) -> None:
    pickle.dump(value, stream)
    stream.flush()


def serve() -> None:
    """Read settings, then models from stdin, and write each result to stdout, until stdin ends."""
    results = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # an environment may print
    import torch

    from edgeflock.server.evaluation.episodes import EpisodeScores
    from edgeflock.shared.environments import open_environment
    from edgeflock.shared.model.torch_module import FlatModule

    torch.set_num_threads(1)
    model: ModelSettings = pickle.load(sys.stdin.buffer)
    scores = EpisodeScores(FlatModule(model.module, model.loss), open_environment(model.data))
    while True:
        try:
            theta = pickle.load(sys.stdin.buffer)
        except EOFError:
            return
        answer: ModelScores | str
        try:
            answer = scores.evaluate(theta)
        except Exception as error:  # a user's environment may raise anything
            answer = f"{type(error).__name__}: {error}"
        _send(results, answer)
