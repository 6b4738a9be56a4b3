"""The world in a box: a world with its clock and its service, packed for whoever wants to ask or to serve it."""

from dataclasses import dataclass

from mistnet.sim.clock import SimClock
from mistnet.sim.faults import PRESETS, Faults
from mistnet.sim.ledger import Key
from mistnet.sim.server import App, asgi
from mistnet.sim.service import DEFAULT_KEY, XService
from mistnet.sim.threads import ThreadsService
from mistnet.sim.threads_truth import ThreadsTruth
from mistnet.sim.truth import Truth
from mistnet.sim.world import World


@dataclass(frozen=True, slots=True, kw_only=True)
class Box:
    clock: SimClock
    service: XService
    threads: ThreadsService

    @property
    def truth(self) -> Truth:
        return Truth(self.service.world)

    @property
    def threads_truth(self) -> ThreadsTruth:
        return ThreadsTruth(self.threads.threads)

    @property
    def handles(self) -> list[str]:
        """Accounts worth tracking, by what they are called now."""
        return self.truth.accounts(self.clock.now())

    def asgi(self) -> App:
        return asgi(self.service, self.clock, self.threads)


def pack(
    *,
    seed: int = 7,
    size: str = "small",
    faults: str = "none",
    latency_seconds: tuple[float, float] = (0.0, 0.0),
    speed: float = 0.0,
    key: Key = DEFAULT_KEY,
    restless: bool = False,
    quiet: bool = False,
    page_limit: int = 100,
) -> Box:
    """The world and its faults follow from the seed; `speed` is simulated seconds per real second."""
    clock = SimClock(speed=speed)
    trouble = Faults(seed, PRESETS[faults], latency_seconds=latency_seconds)
    world = World(seed, size, restless=restless, quiet=quiet)
    threads = ThreadsService(
        world, clock.now, faults=Faults(seed, PRESETS[faults], latency_seconds=latency_seconds), page_limit=page_limit
    )
    service = XService(world, clock.now, keys=[key], faults=trouble)
    return Box(clock=clock, service=service, threads=threads)
