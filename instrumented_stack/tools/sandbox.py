"""A sandbox for short Python programs: a process of its own in an empty folder, behind the fences of `guard.py`. Whatever the
program does, its process group is gone when the call returns."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
import tempfile
from pathlib import Path
from typing import IO

from instrumented_stack.errors import BadRequest

CODE_LIMIT_S, CODE_LIMIT_CHARS, CODE_MEMORY_BYTES = 5.0, 4_000, 512 << 20
OUTPUT_LIMIT_BYTES = 64_000
_GUARD = Path(__file__).with_name("guard.py")


async def run_code(program: str) -> str:
    """What a short Python program prints: 2 s of CPU, 5 s in all, 512 MB, no files but its own empty folder and Python's library,
    no network, no children (docs/stack.md says which fence is made of what). Raises BadRequest, TimeoutError."""
    if len(program) > CODE_LIMIT_CHARS:
        raise BadRequest(f"the program is longer than {CODE_LIMIT_CHARS} characters")
    with (
        tempfile.TemporaryDirectory(prefix="program-") as folder,
        tempfile.TemporaryFile() as given,
        tempfile.TemporaryFile() as printed,
        tempfile.TemporaryFile() as complained,
    ):
        given.write(program.encode("utf-8", "replace"))
        given.seek(0)
        code = await _run(folder, (given, printed, complained))
        out, err = _text(printed), _text(complained)
    if code:
        last = err.strip().splitlines()[-1:] or ["killed"]
        raise BadRequest(f"the program failed: {last[0][:300]}")
    return out[:CODE_LIMIT_CHARS]


async def _run(folder: str, files: tuple[IO[bytes], IO[bytes], IO[bytes]]) -> int:
    """The exit code. Files and no pipes: a program that prints without end meets the limit on its own files."""
    command = (sys.executable, "-I", "-S", str(_GUARD), str(CODE_MEMORY_BYTES), str(OUTPUT_LIMIT_BYTES))
    given, printed, complained = files
    process = await asyncio.create_subprocess_exec(
        *command, stdin=given, stdout=printed, stderr=complained, env={}, cwd=folder, start_new_session=True
    )
    try:
        async with asyncio.timeout(CODE_LIMIT_S):
            return await process.wait()
    except TimeoutError:
        raise TimeoutError(f"Tool execution exceeded {CODE_LIMIT_S:g}s") from None
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        await process.wait()


def _text(file: IO[bytes]) -> str:
    file.seek(0)
    return file.read(OUTPUT_LIMIT_BYTES).decode("utf-8", "replace")
