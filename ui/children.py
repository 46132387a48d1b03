"""Child processes of `up`: started again when they die, stopped with us, and never left behind when we are killed.

Must stay true: a child watches its standard input; when that closes (we are gone, however), the child ends itself.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Sequence

STOP_S = 8.0
FIRST_PAUSE_S, LONGEST_PAUSE_S, HEALTHY_S = 1.0, 60.0, 60.0


class Child:
    """One supervised process; `words` are arguments of `stagescope`. What it has to say comes on standard error."""

    def __init__(self, name: str, words: Sequence[str]) -> None:
        self.name = name
        self._argv = [sys.executable, "-m", "ui.cli", *words]
        self._process: subprocess.Popen[bytes] | None = None
        self._begun = self._again_at = 0.0
        self._pause_s = FIRST_PAUSE_S

    @property
    def pid(self) -> int | None:
        return self._process.pid if self._process else None

    def start(self) -> None:
        self._begun = time.monotonic()
        self._process = subprocess.Popen(self._argv, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL)

    def mend(self) -> None:
        """Start the process again if it died, after a pause that doubles while it keeps dying."""
        if self._process is None or self._process.poll() is None:
            return
        now = time.monotonic()
        if not self._again_at:
            self._pause_s = FIRST_PAUSE_S if now - self._begun > HEALTHY_S else min(LONGEST_PAUSE_S, self._pause_s * 2)
            self._again_at = now + self._pause_s
            said = f"{self.name} ended with {self._process.returncode}: starting it again in {self._pause_s:.0f} s"
            print(f"stagescope up: {said}", file=sys.stderr, flush=True)
        elif now >= self._again_at:
            self._again_at = 0.0
            self.start()

    def stop(self) -> None:
        """End the process, by force after STOP_S."""
        process, self._process = self._process, None
        if process is None:
            return
        if process.stdin:
            process.stdin.close()
        process.terminate()
        try:
            process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def end_with_parent() -> None:
    """For a child: end this process when standard input closes."""

    def wait() -> None:
        while os.read(0, 1024):
            pass
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=wait, name="end-with-parent", daemon=True).start()
