"""Child processes for fault tests, made to be killed."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any

START_S = 90.0


class Process:
    """A child that says when it is ready, and what. `kill` is kill -9; `stop` asks it to end."""

    def __init__(self, target: Callable[..., None], *args: Any, quick: bool = False) -> None:
        """`quick` forks from a server that has imported the consumer; the engine itself does not survive a fork."""
        context = multiprocessing.get_context("forkserver" if quick else "spawn")
        if quick:
            context.set_forkserver_preload(["tests.faults.consumer_process"])
        self._ours, theirs = context.Pipe()
        self._process = context.Process(target=target, args=(theirs, *args), daemon=True)
        self._process.start()
        theirs.close()

    def ready(self) -> Any:
        """Wait for what it says once it is at work."""
        assert self._ours.poll(START_S), "the process did not start"
        return self._ours.recv()

    def is_ready(self) -> bool:
        return self._ours.poll(0)

    def kill(self) -> None:
        assert self._process.pid is not None
        os.kill(self._process.pid, signal.SIGKILL)
        self._process.join()

    def stop(self) -> None:
        self._ours.send("stop")
        self._process.join(START_S)
        assert self._process.exitcode == 0


def stop_when_told(told: Connection) -> threading.Event:
    stop = threading.Event()

    def listen() -> None:
        try:
            told.recv()
        except EOFError:
            os._exit(1)  # the test is gone
        stop.set()

    threading.Thread(target=listen, daemon=True).start()
    return stop
