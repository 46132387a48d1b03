"""The code runner's fences: no files but Python's own, no network, no children, and an end in time. Each is tried from inside."""

from __future__ import annotations

import asyncio
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from instrumented_stack.errors import BadRequest
from instrumented_stack.tools import sandbox
from instrumented_stack.tools.sandbox import run_code

GUARD = Path(sandbox.__file__).with_name("guard.py")


def test_plain_programs_run() -> None:
    async def main() -> list[str]:
        programs = [
            "print(6 * 7)",
            "import collections, dataclasses, datetime, json, random, re, statistics; print(statistics.mean([1, 2, 3]))",
            "import os; print(os.listdir('.'), len(os.environ) < 3)",
            "import threading; t = threading.Thread(target=print, args=(5,)); t.start(); t.join()",
        ]
        return list(await asyncio.gather(*(run_code(program) for program in programs)))

    assert asyncio.run(main()) == ["42\n", "2\n", "[] True\n", "5\n"]


REACHING = [
    "print(open('/etc/passwd').read())",
    "import os; print(os.listdir('/'))",
    "import os; os.open('/etc/passwd', os.O_RDONLY)",
    "import pathlib; print(pathlib.Path.home().joinpath('.bashrc').read_text())",
    "open('here', 'w')",
    "import os; os.mkdir('here')",
    "import os; os.symlink('/etc/passwd', 'here'); print(open('here').read())",
    "print(open('../../etc/passwd').read())",
    "print(open('/proc/self/environ').read())",
    "import socket; socket.create_connection(('127.0.0.1', {port}), 1)",
    "import urllib.request; urllib.request.urlopen('http://127.0.0.1:{port}')",
    "import subprocess; subprocess.run(['ls'])",
    "import os; os.system('true')",
    "import os; os.fork()",
    "import os; os.kill(os.getppid(), 0)",
    "import ctypes",
    "import _posixsubprocess",
    "import sys; sys.modules['__main__'].ctypes",
    "while True: pass",
    "while True: print('x' * 1000)",
    "x = 'a' * 10**10",
    "raise ValueError('no')",
    "(",
    "x" * 5_000,
]


def test_a_program_cannot_reach_out() -> None:
    async def attempt(program: str) -> str:
        try:
            return await run_code(program)
        except BadRequest:
            return "refused"

    async def main() -> list[str]:
        with socket.create_server(("127.0.0.1", 0)) as listening:
            port = str(listening.getsockname()[1])
            return list(await asyncio.gather(*(attempt(item.replace("{port}", port)) for item in REACHING)))

    assert dict(zip(REACHING, asyncio.run(main()), strict=True)) == dict.fromkeys(REACHING, "refused")


def test_a_program_that_sleeps_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sandbox, "CODE_LIMIT_S", 0.5)
    with pytest.raises(TimeoutError, match=r"exceeded 0\.5s"):
        asyncio.run(run_code("import time; time.sleep(60)"))


def behind(fence: str, program: str) -> subprocess.CompletedProcess[str]:
    """Run a program behind one of the kernel's fences alone, without limits and without the audit hook."""
    text = f"""
import ctypes, importlib.util, os, sys
spec = importlib.util.spec_from_file_location("guard", {str(GUARD)!r})
guard = importlib.util.module_from_spec(spec)
spec.loader.exec_module(guard)
libc = ctypes.CDLL(None, use_errno=True)
if not {fence}:
    sys.exit(77)
{program}
"""
    done = subprocess.run([sys.executable, "-I", "-c", text], capture_output=True, text=True, timeout=60, check=False)
    if done.returncode == 77:
        pytest.skip(f"this kernel does not let us: {fence}")
    return done


def test_the_kernel_itself_keeps_files_away() -> None:
    fence = "guard.landlock(libc, [os.getcwd(), *guard.libraries()])"
    own = behind(fence, "print(len(open(os.__file__).read()) > 0)")
    assert own.stdout == "True\n", own.stderr
    for program in (
        "open('/etc/passwd')",
        "os.listdir('/')",
        "open('/tmp/fence-test', 'w')",
        "os.execv('/bin/ls', ['ls'])",
    ):
        assert "PermissionError" in behind(fence, program).stderr, program


def test_the_kernel_itself_keeps_the_network_away() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        program = f"import socket; socket.create_connection(('127.0.0.1', {listening.getsockname()[1]}), 2)"
        assert behind("True", program).returncode == 0
        for fence in ("guard.no_network(libc)", "guard.landlock(libc, ['/']) >= 4"):
            assert "OSError" in behind(fence, program).stderr or "Error" in behind(fence, program).stderr
