"""How a call gets to the next service. `Direct` is a function call for virtual time; live mode has one over HTTP."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from instrumented_stack.telemetry import Link
    from instrumented_stack.world import Request, World


class Wire(Protocol):
    """Both calls raise what the far side raised. `leg_s`: seconds that one direction is to take; 0 where a real network is crossed."""

    leg_s: float

    async def orchestrate(self, world: World, request: Request, host: str, link: Link) -> None: ...
    async def work(self, world: World, request: Request, step: tuple[str, str], host: str, link: Link) -> None: ...


class Direct:
    """Everything in one process; the network between two services is a pause."""

    leg_s = 0.0006

    async def orchestrate(self, world: World, request: Request, host: str, link: Link) -> None:
        from instrumented_stack import orchestrator  # the services know the wire, not the other way round

        await orchestrator.answer(world, request, host, link)

    async def work(self, world: World, request: Request, step: tuple[str, str], host: str, link: Link) -> None:
        from instrumented_stack import workers

        await workers.serve(world, request, step, host, link)
