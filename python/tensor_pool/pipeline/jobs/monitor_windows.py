"""What a live monitor knows: windows of time, stream by stream, and what is alarming about them.

Without Spark, thread or clock: takes sums of each batch, and tells what changed.
"""

from __future__ import annotations

import datetime as dt
from collections import OrderedDict
from typing import Final, Literal

import msgspec

__all__ = ["Alarm", "BatchSums", "MonitorLimits", "MonitorWindow", "WindowBook"]

AlarmName = Literal["missing_frames", "rate_low", "age_high", "silent", "restarted"]
_US: Final = 1_000_000
_NS: Final = 1e9
_MOST_OPEN: Final = 64
"""Windows of a stream that frames may still be added to."""


class MonitorLimits(msgspec.Struct, frozen=True, kw_only=True):
    """What raises an alarm; None for what never does.

    ==================  ===============================  =====================================================
    alarm               limit                            raised when
    ==================  ===============================  =====================================================
    ``missing_frames``  ``max_missing``                  more frames of a window are missing
    ``rate_low``        ``min_rate_hz``                  frames of a window that is over came slower
    ``age_high``        ``max_age_s``                    a frame was older when it was recorded, or read
    ``silent``          ``max_silence_s``                nothing came for longer, between windows or batches
    ``restarted``       ``restarts``                     a stream has a new epoch
    ==================  ===============================  =====================================================
    """

    max_missing: int | None = 0
    min_rate_hz: float | None = None
    max_age_s: float | None = None
    max_silence_s: float | None = None
    restarts: bool = True


class BatchSums(msgspec.Struct, frozen=True, kw_only=True):
    """What one batch holds of one window of one stream."""

    stream: str
    start_us: int
    frames: int
    missing: int
    epoch: int
    """The largest one."""
    first_ns: int | None
    """The smallest time stamp of a frame."""
    last_ns: int | None
    first_us: int
    """When the first row was, in real time as far as that is known."""
    last_us: int
    ages: int
    """How many frames have an age."""
    age_sum_s: float
    age_max_s: float | None


class MonitorWindow(msgspec.Struct, kw_only=True):
    """What one stream was like in one window."""

    stream: str
    start: str
    seconds: float
    batch: int
    """The newest batch that added something: of several rows of a window the one with the largest counts."""
    frames: int = 0
    missing: int = 0
    epoch: int = 0
    rate_hz: float | None = None
    """By time stamps; None with less than two frames."""
    age_mean_s: float | None = None
    """How old frames were when they were recorded, or read where they come live; None without a clock."""
    age_max_s: float | None = None
    is_over: bool = False
    """Whether a later window of the stream has begun, or the query has ended."""


class Alarm(msgspec.Struct, frozen=True, kw_only=True):
    """Something that somebody should look at.

    Example:
        >>> alarm = Alarm(
        ...     name="rate_low", stream="camera-1", start="2026-11-15T12:00:00Z", value=12.0, limit=25.0
        ... )
        >>> str(alarm)
        'rate_low: camera-1 at 2026-11-15T12:00:00Z: 12, limit 25'
    """

    name: AlarmName
    stream: str
    start: str
    """Of the window; of the silence, when it is about one."""
    value: float
    limit: float

    def __str__(self) -> str:
        return f"{self.name}: {self.stream} at {self.start}: {self.value:.6g}, limit {self.limit:g}"


class _Open(msgspec.Struct):
    """A window and the sums behind its numbers."""

    shown: MonitorWindow
    first_ns: int | None = None
    last_ns: int | None = None
    ages: int = 0
    age_sum_s: float = 0.0


class WindowBook:
    """Adds up batches.

    A streaming aggregation of Spark would drop what is late, by one clock for all streams: a stream that is
    read later than another one would lose rows. Here nothing is dropped, and memory is bounded all the same.

    Args:
        window_s: How long a window is.
        limits: What is alarming.

    Example:
        >>> book = WindowBook(10.0, MonitorLimits())
        >>> sums = BatchSums(stream="a", start_us=0, frames=9, missing=1, epoch=1, first_ns=0,
        ...                  last_ns=8 * 10**8, first_us=0, last_us=10**6,
        ...                  ages=0, age_sum_s=0.0, age_max_s=None)
        >>> windows, alarms = book.add(0, [sums])
        >>> windows[0].rate_hz, [alarm.name for alarm in alarms]
        (10.0, ['missing_frames'])
    """

    def __init__(self, window_s: float, limits: MonitorLimits) -> None:
        self._window_s = window_s
        self._limits = limits
        self._open: dict[str, OrderedDict[int, _Open]] = {}
        self._epochs: dict[str, int] = {}
        self._last_us: dict[str, int] = {}
        self._raised: OrderedDict[tuple[str, str, str], None] = OrderedDict()

    @property
    def streams(self) -> list[str]:
        """Those of which something came."""
        return sorted(self._open)

    def add(self, batch: int, sums: list[BatchSums]) -> tuple[list[MonitorWindow], list[Alarm]]:
        """Takes what a batch holds; tells which windows changed, and what is alarming about them.

        Args:
            batch: Its number.
            sums: One for each window and stream.
        """
        changed: list[MonitorWindow] = []
        alarms: list[Alarm] = []
        for each in sorted(sums, key=lambda one: (one.stream, one.start_us)):
            alarms += self._raise_silence_and_restart(each)
            windows = self._open.setdefault(each.stream, OrderedDict())
            window = self._merged(windows, each, batch)
            alarms += self._raise(window)
            changed.append(window)
            for start_us, earlier in windows.items():
                if start_us < max(windows) and not earlier.shown.is_over:
                    earlier.shown.is_over = True
                    alarms += self._raise(earlier.shown)
                    changed.append(earlier.shown)
            while len(windows) > _MOST_OPEN:
                windows.popitem(last=False)
        unique = {id(window): window for window in changed}
        return list(unique.values()), alarms

    def end(self) -> tuple[list[MonitorWindow], list[Alarm]]:
        """No batch comes any more: all windows are over."""
        ended = [
            one.shown for windows in self._open.values() for one in windows.values() if not one.shown.is_over
        ]
        alarms: list[Alarm] = []
        for window in ended:
            window.is_over = True
            alarms += self._raise(window)
        return ended, alarms

    def silence(self, stream: str, seconds: float) -> list[Alarm]:
        """Nothing of a stream came for so long, by the clock of who watches."""
        start = _iso(self._last_us.get(stream, 0))
        return self._once("silent", stream, start, seconds, self._limits.max_silence_s)

    def _merged(self, windows: OrderedDict[int, _Open], each: BatchSums, batch: int) -> MonitorWindow:
        one = windows.get(each.start_us)
        if one is None:
            shown = MonitorWindow(
                stream=each.stream, start=_iso(each.start_us), seconds=self._window_s, batch=batch
            )
            one = windows[each.start_us] = _Open(shown)
        shown = one.shown
        shown.batch = batch
        shown.frames += each.frames
        shown.missing += each.missing
        shown.epoch = max(shown.epoch, each.epoch)
        one.first_ns = min((ns for ns in (one.first_ns, each.first_ns) if ns is not None), default=None)
        one.last_ns = max((ns for ns in (one.last_ns, each.last_ns) if ns is not None), default=None)
        if one.first_ns is not None and one.last_ns is not None and one.last_ns > one.first_ns:
            shown.rate_hz = (shown.frames - 1) * _NS / (one.last_ns - one.first_ns)
        one.ages += each.ages
        one.age_sum_s += each.age_sum_s
        if one.ages:
            shown.age_mean_s = one.age_sum_s / one.ages
        shown.age_max_s = max((s for s in (shown.age_max_s, each.age_max_s) if s is not None), default=None)
        return shown

    def _raise(self, window: MonitorWindow) -> list[Alarm]:
        limits, alarms = self._limits, []
        if limits.max_missing is not None and window.missing > limits.max_missing:
            alarms += self._once(
                "missing_frames", window.stream, window.start, window.missing, limits.max_missing
            )
        age = window.age_max_s
        if limits.max_age_s is not None and age is not None and age > limits.max_age_s:
            alarms += self._once("age_high", window.stream, window.start, age, limits.max_age_s)
        rate = window.rate_hz
        if (
            window.is_over
            and limits.min_rate_hz is not None
            and rate is not None
            and rate < limits.min_rate_hz
        ):
            alarms += self._once("rate_low", window.stream, window.start, rate, limits.min_rate_hz)
        return alarms

    def _raise_silence_and_restart(self, each: BatchSums) -> list[Alarm]:
        alarms, start = [], _iso(each.start_us)
        known = self._epochs.get(each.stream)
        if self._limits.restarts and known is not None and each.epoch > known:
            alarms += self._once("restarted", each.stream, start, each.epoch, known)
        self._epochs[each.stream] = max(each.epoch, known or 0)
        last_us, most_s = self._last_us.get(each.stream), self._limits.max_silence_s
        if most_s is not None and last_us is not None and each.first_us - last_us > most_s * _US:
            silent_s = (each.first_us - last_us) / _US
            alarms += self._once("silent", each.stream, _iso(last_us), silent_s, most_s)
        self._last_us[each.stream] = max(each.last_us, last_us or 0)
        return alarms

    def _once(
        self, name: AlarmName, stream: str, start: str, value: float, limit: float | None
    ) -> list[Alarm]:
        """An alarm, unless it was raised before for the same window."""
        key = (name, stream, start)
        if limit is None or key in self._raised:
            return []
        self._raised[key] = None
        while len(self._raised) > _MOST_OPEN * 16:
            self._raised.popitem(last=False)
        return [Alarm(name=name, stream=stream, start=start, value=value, limit=limit)]


def _iso(us: int) -> str:
    moment = dt.datetime(1970, 1, 1, tzinfo=dt.UTC) + dt.timedelta(microseconds=us)
    return moment.isoformat().replace("+00:00", "Z")
