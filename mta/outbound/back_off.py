"""Backs off from servers: requeues mail that waits for them, and notifies the other processes."""

from mta.outbound.requeue import Requeuer
from mta.outbound.sites.site import SiteGroup
from mta.outbound.sites.windows import SiteWindows
from mta.outbound.tasks import DeliveryTasks


class BackOff:
    """Requeues the waiting mail of servers that push back or refuse the source address of one process."""

    def __init__(self, windows: SiteWindows, requeuer: Requeuer, tasks: DeliveryTasks, *, several_sources: bool):
        self._windows = windows
        self._requeuer = requeuer
        self._tasks = tasks
        self._several_sources = several_sources
        self._has_news = False

    def pause(self, group: SiteGroup, tell_s: float = 0.0) -> None:
        """Requeue what waits for paused servers. With `tell_s` other processes pause for that long too."""
        if tell_s:
            self._windows.tell_pause(group.pacer, tell_s)
            self._has_news = True
        parked = group.take_waiting()
        if parked:
            self._tasks.start(self._requeuer.until_probe(group.pacer, parked))

    def leave_source(self, group: SiteGroup) -> None:
        """Requeue what waits to leave from a source address that the servers refuse, if there are other addresses."""
        moved = group.take_waiting() if self._several_sources else []
        if moved:
            self._tasks.start(self._requeuer.share_anew(moved))

    @property
    def has_news(self) -> bool:
        """Return True if servers were paused since the last `take_news`."""
        return self._has_news

    def take_news(self) -> None:
        """Note that the operator has been shown the pauses."""
        self._has_news = False
