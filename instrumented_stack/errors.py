"""The errors that users of the agent see, with the texts that the field knows. A person reads the message, a machine the class name."""


class ScenarioError(Exception):
    """A scenario file that means nothing: file, line, reason."""


class AgentError(Exception):
    """A failure with a structured code; `http_status` is what the gateway answers."""

    code = "agent_error"
    http_status = 500


class ResourceExhausted(AgentError):
    code = "resource_exhausted"
    http_status = 503


class ServiceDegradedError(AgentError):
    code = "service_degraded"
    http_status = 503


class AgentExecutionFailed(AgentError):
    code = "agent_execution_failed"
    http_status = 500


class StateConflictError(AgentError):
    code = "state_conflict"
    http_status = 409


class CircuitOpenError(AgentError):
    code = "circuit_open"
    http_status = 503


class BadRequest(AgentError):
    code = "bad_request"
    http_status = 400


class NotFound(AgentError):
    code = "not_found"
    http_status = 404


class Unauthorised(AgentError):
    code = "unauthorised"
    http_status = 401


class RateLimited(AgentError):
    code = "rate_limited"
    http_status = 429


class SerialisationError(ValueError):
    """What a caller sees of an encoding error on the far side."""


def far_error(name: str, message: str) -> Exception:
    """The error that a service reported, as one of ours."""
    known: dict[str, type[Exception]] = {
        item.__name__: item
        for item in (
            ResourceExhausted,
            ServiceDegradedError,
            AgentExecutionFailed,
            StateConflictError,
            CircuitOpenError,
            BadRequest,
            Unauthorised,
            RateLimited,
            TimeoutError,
        )
    }
    return known.get(name, SerialisationError if "Unicode" in name else AgentError)(message)
