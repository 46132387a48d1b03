"""Stack frames, error types and status codes out of the texts that failures carry. Pure functions.

Must stay true: line numbers, addresses and ids never reach a frame, so that a redeploy keeps the same frames.
"""

from __future__ import annotations

import re

MOST_FRAMES = 8
_PYTHON = re.compile(r'File "([^"\n]+)", line \d+, in ([^\n]+)')
_JAVA = re.compile(r"^\s*at ([\w.$<>/]+)\(", re.M)
_SCRIPT = re.compile(r"^\s*at (?:async )?([\w.$<> \[\]]+?) \(([^()\n]*?):\d+:\d+\)", re.M)
_GO = re.compile(r"^([\w./*()-]+\.[\w.*()-]+)\(.*\)\s*$", re.M)
_NAME = re.compile(
    r"\b((?:[a-z_]\w*\.)*[A-Z]\w*(?:Error|Exception|Exhausted|Timeout|Failed|Failure|Fault|Interrupt|Exceeded))\b"
)
_CODE = re.compile(
    r"\b(?:HTTP(?:/\d(?:\.\d)?)?|status(?:[_ ]?code)?|code|errno|error code|exit(?:ed)?(?: with)?(?: code| status)?)"
    r"[\"']?\s*[:=#]?\s*[\"'(]?(-?\d{1,5})\b",
    re.I,
)
_PHRASE = re.compile(
    r"\b([45]\d\d) (?:Bad Request|Unauthorized|Forbidden|Not Found|Conflict|Gone|Too Many Requests|Internal Server Error|"
    r"Bad Gateway|Service Unavailable|Gateway Time-?out|Unprocessable|Client Error|Server Error)",
    re.I,
)
_RESULT = re.compile(
    r'"(?:error|errors|exception|message|detail)"\s*:\s*(?:\{[^{}]*?"message"\s*:\s*)?"((?:[^"\\]|\\.){1,2000})"'
)


def frames(stacktrace: str) -> list[str]:
    """`file:function` of at most 8 frames, innermost first; from Python, Java, JavaScript or Go."""
    text = stacktrace[:200_000]
    if found := _PYTHON.findall(text):
        names = [f"{_base(path)}:{function.strip()}" for path, function in reversed(found)]
    elif script := _SCRIPT.findall(text):
        names = [f"{_base(path)}:{function.strip()}" for function, path in script]
    else:
        names = _JAVA.findall(text) or _GO.findall(text)
    return [re.sub(r"0x[0-9a-f]+|\d{3,}", "#", name)[:200] for name in names[:MOST_FRAMES]]


def _base(path: str) -> str:
    return path.replace("\\", "/").rsplit("/", 1)[-1]


def error_type(declared: str, message: str) -> str:
    """The bare name of the error: the declared one without its module, else one named in the message, else ''."""
    name = declared.strip().rsplit(".", 1)[-1] if declared.strip() not in ("", "_OTHER", "Error", "Exception") else ""
    if name and not name.isdigit():
        return name[:200]
    found = _NAME.search(message[:2000])
    return found.group(1).rsplit(".", 1)[-1] if found else name


def status_code(declared: str, message: str) -> str:
    """What masking would hide and must not: an HTTP status, exit code or errno, else ''."""
    if declared.strip().isdigit():
        return declared.strip()
    text = message[:2000]
    found = _PHRASE.search(text) or _CODE.search(text)
    return found.group(1) if found else ""


def result_error(result: str) -> str:
    """The error text inside a tool's JSON result; the start of the result where no field says it."""
    found = _RESULT.search(result[:20_000])
    return found.group(1) if found else result[:500]
