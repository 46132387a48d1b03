"""Who asks what: dimensions, task, session and text of the n-th request, decided by seed and number alone."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Mapping

from instrumented_stack.catalogue import TASKS
from instrumented_stack.scenario import Scenario
from instrumented_stack.telemetry import Link
from instrumented_stack.traffic import Arrival
from instrumented_stack.world import Request

QUESTIONS = {
    "weekly_report": "make the weekly report for team {n}",
    "question": "what does the handbook say about travel rule {n}",
    "calculation": "what is {n} * 17 + 4",
    "conversion": "how many miles are {n} km",
    "document": "read the attached contract {n} and tell me the notice period",
    "mail_draft": "draft a mail to customer {n} about the late delivery",
    "analysis": "which region grew most in quarter {n}, and by how much",
    "translation": "translate 'delivery note {n}' into German",
    "web_brief": "brief me on status page {n}",
    "approval": "book room {n} for Monday, I will confirm",
    "reflection": "check again whether order {n} was shipped",
}


class RequestMaker:
    """Draws requests; the same seed, start and number give the same request and trace id."""

    def __init__(self, scenario: Scenario, start_ns: int) -> None:
        self._scenario, self._start_ns = scenario, start_ns
        self._mixes = {
            "task": _cumulative(scenario.traffic.tasks),
            "region": _cumulative(scenario.traffic.regions),
            "device": _cumulative(scenario.traffic.devices),
            "user_tier": _cumulative(scenario.traffic.tiers),
            "version": _cumulative(scenario.traffic.versions),
        }

    def make(self, number: int, arrival: Arrival) -> Request:
        scenario = self._scenario
        rng = random.Random((scenario.seed << 32) ^ number)
        user = rng.randrange(scenario.traffic.users)
        owner = random.Random((scenario.seed << 32) ^ (user + (1 << 62)))
        dims = {
            "task": _pick(self._mixes["task"], rng),
            "region": _pick(self._mixes["region"], owner),
            "device": _pick(self._mixes["device"], owner),
            "user_tier": _pick(self._mixes["user_tier"], owner),
            "version": self._version(arrival.at_s, rng),
            "user": f"user-{user:05d}",
            "session": f"session-{user:05d}-{int(arrival.at_s // 1800)}",
        }
        link = Link(self.trace_id(number), b"", _common(dims), self._sampled(rng))
        task = TASKS[dims["task"]]
        text = QUESTIONS[task.name].format(n=rng.randrange(40))
        request = Request(
            number, rng, dims, task, text, link, scenario.traffic.input_scale, scenario.traffic.output_scale
        )
        request.output_tokens = arrival.output_tokens
        request.history_tokens = arrival.input_tokens or int(rng.expovariate(1 / 160) * scenario.traffic.input_scale)
        return request

    def trace_id(self, number: int) -> bytes:
        name = f"{self._scenario.name}/{self._scenario.seed}/{self._start_ns}/{number}"
        return hashlib.blake2b(name.encode(), digest_size=16).digest()

    def _version(self, at_s: float, rng: random.Random) -> str:
        version = _pick(self._mixes["version"], rng)
        for rollout in self._scenario.rollouts:
            if at_s >= rollout.start_s and rng.random() < rollout.share:
                version = rollout.version
        return version

    def _sampled(self, rng: random.Random) -> bool:
        share = self._scenario.switches.sampling
        return share >= 1 or rng.random() < share


def _common(dims: Mapping[str, str]) -> dict[str, str | bool | int | float]:
    """What every span of a request says about who asked."""
    return {
        "cloud.region": dims["region"],
        "device.type": dims["device"],
        "user.tier": dims["user_tier"],
        "user.id": dims["user"],
        "session.id": dims["session"],
        "agent.task": dims["task"],
    }


def _cumulative(mix: Mapping[str, float]) -> tuple[tuple[float, str], ...]:
    total, out = 0.0, []
    for name, weight in mix.items():
        total += weight
        out.append((total, name))
    return tuple(out)


def _pick(mix: tuple[tuple[float, str], ...], rng: random.Random) -> str:
    value = rng.random() * mix[-1][0]
    return next((name for edge, name in mix if value < edge), mix[-1][1])
