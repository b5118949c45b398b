"""Draw the plots of a report with matplotlib. Times are seconds since the first send; every axis begins at zero."""

from collections.abc import Iterable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from loadtests.bench.measure import SERVER_ROLES
from loadtests.report import load_record
from loadtests.report.load_record import LoadRecord
from loadtests.report.samples import LoadSample, cores

if TYPE_CHECKING:  # matplotlib comes with the load group, when a load test first wants it
    from matplotlib.figure import Figure

_WIDTH_IN: Final = 9.0
_PANEL_IN: Final = 2.6
_DPI: Final = 120
_INK: Final = "#2b2f36"
# Okabe and Ito's palette: distinguishable for colour-blind readers.
_COLOURS: Final = ("#0072b2", "#e69f00", "#009e73", "#d55e00", "#56b4e9", "#cc79a7", "#f0e442", "#7f7f7f")
_PERCENTILES: Final = {"p50": "#0072b2", "p95": "#e69f00", "p99": "#d55e00"}
_ROLE_COLOURS: Final = dict(zip(("api", "mta", "postgres", "worker", "redis", "relay"), _COLOURS, strict=False)) | {
    "locust": "#0072b2",
    "sink": "#009e73",
    "receivers": "#cc79a7",
    "dns": "#e69f00",
    "sampler": "#7f7f7f",
}
_MAX_PANELS: Final = 6
_MIN_MEMORY_MB: Final = 0.1

Points = Iterable[tuple[float, float]]


def draw(done: LoadRecord, moments: list[LoadSample], folder: Path) -> dict[str, Path]:
    """Draw every plot that has data; return the files by title, in the order of the page."""
    sent = [(done.second(one.at), one.ms) for one in done.requests if one.offered and one.succeeded]
    until = max([done.seconds, *(done.second(one.at) for one in moments)])
    drawn = {
        "Throughput": _throughput(done, until, folder),
        "Acceptance": _times("Time to the answer, by second", [("", sent)], done, folder / "accept.png"),
        "Delivery": _deliveries(done, folder),
    }
    if done.tailed:
        points = [(done.second(at), ms) for at, ms in done.tailed]
        title = "Time from an event's making to a live tail"
        drawn["Live tails"] = _times(title, [("", points)], done, folder / "tails.png")
    if any(one.memory_mb for one in moments) and any("api" in one.cpu_ms for one in moments):
        drawn |= {
            "Queue": _queue(done, moments, folder),
            "CPU by role": _cpu(done, moments, folder),
            "Memory by role": _memory(done, moments, folder),
        }
    return {title: file for title, file in drawn.items() if file is not None}


def _throughput(done: LoadRecord, until: float, folder: Path) -> Path:
    figure, [axes] = _panels(["Throughput"], until, done)
    taken = [one for one in done.requests if one.accepted]
    accepted = load_record.rates([done.second(one.at) for one in taken], until, [float(one.accepted) for one in taken])
    _line(axes, accepted, "accepted", _COLOURS[0])
    if done.arrivals:
        arrived = load_record.rates([done.second(at) for at in done.arrivals], until)
        _line(axes, arrived, "arrived at the sink", _COLOURS[2])
    if done.posted:
        _line(axes, load_record.rates([done.second(at) for at in done.posted], until), "webhook posts", _COLOURS[5])
    failed = [done.second(one.at) for one in done.requests if not one.succeeded]
    if failed:
        _line(axes, load_record.rates(failed, until), "requests that failed", _COLOURS[3])
    axes.set_ylabel("a second")
    return _saved(figure, [axes], folder / "throughput.png")


def _deliveries(done: LoadRecord, folder: Path) -> Path | None:
    """Draw one panel for each group of mail, because their scales differ."""
    kinds: dict[str, list[tuple[float, float]]] = {}
    for recipient in done.recipients:
        if recipient.arrived_at is not None:
            kinds.setdefault(recipient.group, []).append((done.second(recipient.accepted_at), recipient.ms))
    several = len(kinds) > 1
    panels = [(name if several else "", points) for name, points in kinds.items()][:_MAX_PANELS]
    return _times("Time from answer to arrival, by second of the answer", panels, done, folder / "deliver.png")


def _times(
    title: str, panels: Sequence[tuple[str, Sequence[tuple[float, float]]]], done: LoadRecord, file: Path
) -> Path | None:
    panels = [(name, points) for name, points in panels if points]
    if not panels:
        return None
    until = max([done.seconds, *(at for _, points in panels for at, _ in points)])
    figure, all_axes = _panels([f"{title}: {name}" if name else title for name, _ in panels], until, done)
    for axes, (_, points) in zip(all_axes, panels, strict=True):
        found = load_record.by_second(points)
        for name, colour in _PERCENTILES.items():
            _line(axes, [(second + 0.5, one[name]) for second, one in found.items()], name, colour)
        axes.set_ylabel("milliseconds")
    return _saved(figure, all_axes, file)


def _queue(done: LoadRecord, moments: list[LoadSample], folder: Path) -> Path:
    hooks = any(one.hooks for one in moments)
    titles = ["Deliveries in the queue", "Age of the oldest delivery", *(["Webhook posts in the queue"] * hooks)]
    figure, all_axes = _panels(titles, done.second(moments[-1].at), done)
    seconds = [done.second(one.at) for one in moments]
    depth = all_axes[0]
    depth.fill_between(seconds, [one.depth for one in moments], color=_COLOURS[0], alpha=0.25, linewidth=0)
    _line(depth, zip(seconds, [one.depth for one in moments], strict=True), "all", _COLOURS[0])
    _line(depth, zip(seconds, [one.never_tried for one in moments], strict=True), "never tried yet", _COLOURS[3])
    depth.set_ylabel("deliveries")
    _line(all_axes[1], zip(seconds, [one.oldest_s for one in moments], strict=True), "oldest", _COLOURS[3])
    all_axes[1].set_ylabel("seconds")
    if hooks:
        _line(all_axes[2], zip(seconds, [one.hooks for one in moments], strict=True), "posts", _COLOURS[5])
        all_axes[2].set_ylabel("posts")
    return _saved(figure, all_axes, folder / "queue.png")


def _cpu(done: LoadRecord, moments: list[LoadSample], folder: Path) -> Path:
    """Draw the CPU of the service and that of load generator, sink and others in two panels."""
    steps = [(done.second(after.at), cores(before, after)) for before, after in pairwise(moments)]
    seconds = [at for at, _ in steps]
    figure, all_axes = _panels(["CPU of the service", "CPU of the load: Locust, sink and others"], seconds[-1], done)
    names = {role for _, used in steps for role in used}
    ours: list[str] = [role for role in SERVER_ROLES if role in names]
    for axes, roles in zip(all_axes, (ours, sorted(names - set(ours))), strict=True):
        _stacked(axes, seconds, {role: [100 * used.get(role, 0.0) for _, used in steps] for role in roles})
        axes.set_ylabel("% of a core")
    return _saved(figure, all_axes, folder / "cpu.png")


def _memory(done: LoadRecord, moments: list[LoadSample], folder: Path) -> Path:
    seconds = [done.second(one.at) for one in moments]
    figure, [axes] = _panels(["Memory of the service"], seconds[-1], done)
    roles = [role for role in SERVER_ROLES if any(one.memory_mb.get(role, 0.0) > _MIN_MEMORY_MB for one in moments)]
    _stacked(axes, seconds, {role: [one.memory_mb.get(role, 0.0) for one in moments] for role in roles})
    axes.set_ylabel("MiB")
    return _saved(figure, [axes], folder / "memory.png")


def _panels(titles: Sequence[str], until: float, done: LoadRecord) -> "tuple[Figure, list[Any]]":
    """Create panels below one another with a shared time axis; the time after the last send is shaded."""
    import matplotlib as mpl  # noqa: PLC0415
    from matplotlib.figure import Figure  # noqa: PLC0415

    mpl.use("Agg")
    figure = Figure(figsize=(_WIDTH_IN, 0.5 + _PANEL_IN * len(titles)), dpi=_DPI, layout="constrained")
    found = list(figure.subplots(len(titles), 1, sharex=True, squeeze=False)[:, 0])
    for axes, title in zip(found, titles, strict=True):
        axes.set_title(title, loc="left", fontsize=10, fontweight="bold", color=_INK)
        axes.grid(visible=True, color="#d9dce1", linewidth=0.6)
        axes.set_axisbelow(True)
        axes.tick_params(labelsize=8, colors=_INK)
        for side in ("top", "right"):
            axes.spines[side].set_visible(False)
        if until > done.seconds + 1:
            axes.axvspan(done.seconds, until, color="#8a8f98", alpha=0.10, linewidth=0, label="after the last send")
    found[-1].set_xlabel("seconds since the first send", fontsize=9, color=_INK)
    found[-1].set_xlim(0, max(1.0, until))
    return figure, found


def _line(axes: Any, points: Points, label: str, colour: str) -> None:
    both = list(points)
    axes.plot([at for at, _ in both], [value for _, value in both], label=label, color=colour, linewidth=1.4)


def _stacked(axes: Any, seconds: list[float], values: dict[str, list[float]]) -> None:
    if values:
        colours = [_ROLE_COLOURS.get(role, _INK) for role in values]
        axes.stackplot(seconds, list(values.values()), labels=list(values), colors=colours, alpha=0.85, linewidth=0)


def _saved(figure: "Figure", all_axes: Sequence[Any], file: Path) -> Path:
    for axes in all_axes:
        axes.set_ylim(bottom=0)
        axes.legend(loc="upper left", bbox_to_anchor=(1.005, 1.0), fontsize=8, frameon=False)
        axes.yaxis.set_major_formatter(lambda value, _: f"{value:,.10g}")
        axes.yaxis.label.set(fontsize=9, color=_INK)
    figure.savefig(file)
    return file
