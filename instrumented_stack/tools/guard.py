"""Runs the program on stdin behind fences; started alone as `python -I -S guard.py MEMORY_BYTES OUTPUT_BYTES` in an empty folder.
The kernel's fences (limits, namespaces, Landlock) are the wall; the audit hook says the same in Python where the kernel cannot."""

from __future__ import annotations

import os
import resource
import struct
import sys

TYPE_CHECKING = False  # without `typing`, whose import would be half of what a short program costs
if TYPE_CHECKING:
    import ctypes

NEW_USER, NEW_NETWORK, NEW_IPC = 0x10000000, 0x40000000, 0x08000000
NO_NEW_PRIVILEGES = 38
CREATE_RULESET, ADD_RULE, RESTRICT_SELF = 444, 445, 446  # the same numbers on every architecture
READ_FILE, READ_FOLDER = 1 << 2, 1 << 3
# What each version of Landlock can withhold on files: 13 rights, then linking, truncating, device controls.
FILE_RIGHTS = {1: 13, 2: 14, 3: 15, 4: 15, 5: 16}
FORBIDDEN = (
    *("socket.", "subprocess.", "ctypes.", "os.exec", "os.fork", "os.posix_spawn", "os.spawn", "os.system", "os.kill"),
    *("os.putenv", "os.symlink", "os.link", "os.mkdir", "os.mkfifo", "pty.", "gc.get_", "syslog.", "webbrowser."),
)
MODULES = frozenset({"ctypes", "_ctypes", "_posixsubprocess", "_socket"})


def limits(memory_bytes: int, output_bytes: int) -> None:
    """2 s of CPU, so much memory, so much printed, few handles, and no children (root is not held by the last)."""
    for what, most in (
        (resource.RLIMIT_CPU, 2),
        (resource.RLIMIT_AS, memory_bytes),
        (resource.RLIMIT_FSIZE, output_bytes),
        (resource.RLIMIT_NOFILE, 32),
        (resource.RLIMIT_NPROC, 0),
        (resource.RLIMIT_CORE, 0),
    ):
        resource.setrlimit(what, (most, most))


def libraries() -> list[str]:
    """The folders that Python itself must read to import its own modules."""
    own = [os.path.dirname(os.__file__), *(path for path in sys.path if os.path.isdir(path))]
    return [path for path in (*own, "/lib", "/lib64", "/usr/lib", "/usr/lib64") if os.path.isdir(path)]


def no_network(libc: ctypes.CDLL) -> bool:
    """Move into a network of our own, where nothing is; False where the kernel lets only root do that."""
    return bool(libc.unshare(NEW_USER | NEW_NETWORK | NEW_IPC) == 0)


def landlock(libc: ctypes.CDLL, readable: list[str]) -> int:
    """Take away all rights on files but reading below `readable`, and TCP, foreign signals and abstract sockets where the
    kernel can; the version of Landlock, 0 without it."""
    version = libc.syscall(CREATE_RULESET, None, 0, 1)
    if version < 1:
        return 0
    files = (1 << FILE_RIGHTS.get(version, 16)) - 1
    attributes = struct.pack("=QQQ", files, 3, 3)[: 8 if version < 4 else 16 if version < 6 else 24]
    rules = libc.syscall(CREATE_RULESET, attributes, len(attributes), 0)
    for path in readable:
        folder = os.open(path, os.O_PATH | os.O_CLOEXEC)
        libc.syscall(ADD_RULE, rules, 1, struct.pack("=Qi", READ_FILE | READ_FOLDER, folder), 0)
        os.close(folder)
    libc.prctl(NO_NEW_PRIVILEGES, 1, 0, 0, 0)
    done = libc.syscall(RESTRICT_SELF, rules, 0) == 0
    os.close(rules)
    return int(version) if done else 0


def watch(readable: list[str]) -> None:
    """The same fences as an audit hook, which cannot be taken off again."""
    inside = tuple(os.path.realpath(path) + os.sep for path in readable)
    # The hook keeps what it needs in names of its own: the program may change every module, not these.
    real, sep, forbidden, modules, writing = os.path.realpath, os.sep, FORBIDDEN, MODULES, os.O_WRONLY | os.O_RDWR

    def hook(event: str, arguments: tuple[object, ...]) -> None:
        if event.startswith(forbidden) or (event == "import" and arguments[0] in modules):
            raise PermissionError(f"the sandbox forbids {event}")
        if event in ("open", "os.listdir", "os.scandir", "os.chdir") and isinstance(arguments[0], str | bytes):
            path = real(os.fsdecode(arguments[0]))
            flags = arguments[2] if event == "open" else 0
            if not (path + sep).startswith(inside) or (isinstance(flags, int) and flags & writing):
                raise PermissionError(f"the sandbox keeps {path} out of reach")

    sys.addaudithook(hook)


def fence(memory_bytes: int, output_bytes: int) -> dict[str, str]:
    """Put up all fences; what files and network are held by. Keeps nothing that the program could find and use."""
    import ctypes

    readable = [os.getcwd(), *libraries()]
    libc = ctypes.CDLL(None, use_errno=True)
    linux = sys.platform == "linux"
    apart = linux and no_network(libc)
    version = landlock(libc, readable) if linux else 0
    limits(memory_bytes, output_bytes)
    for name in [name for name in sys.modules if name.partition(".")[0] in MODULES]:
        del sys.modules[name]
    watch(readable)
    network = "namespace" if apart else "landlock" if version >= 4 else "audit hook"
    return {"files": f"landlock {version}" if version else "audit hook", "network": network}


def main() -> None:
    code = compile(sys.stdin.read(), "program", "exec")
    exec(code, {"__name__": "__main__", "FENCES": fence(int(sys.argv[1]), int(sys.argv[2]))})


if __name__ == "__main__":
    main()
