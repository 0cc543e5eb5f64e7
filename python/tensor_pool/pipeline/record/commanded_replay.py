"""A replay that others can hold, hurry and end: the service ``replay``."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from tensor_pool.control.config import ControlSection
from tensor_pool.control.declared import Command, Property, reading
from tensor_pool.host.control import Service

if TYPE_CHECKING:
    from tensor_pool.config import Config
    from tensor_pool.pipeline.record.replay import Replay

__all__ = ["replay_service"]


def replay_service(
    replay: Replay, config: Config, *, instance: str = ""
) -> contextlib.AbstractContextManager[object]:
    """Lets others command a replay until the block ends, if the configuration lets them.

    Args:
        replay: What is commanded.
        config: Where commands come from.
        instance: Which replay this is, where there are several.
    """
    if not config[ControlSection].enabled:
        return contextlib.nullcontext()

    def refresh(service: Service) -> None:
        stats = replay.stats
        service["replay.position_s"] = round(stats.position_s, 3)
        service["replay.frames"] = stats.frames

    return Service(
        "replay",
        instance=instance,
        doc="Publishes a recording as its streams came.",
        properties={
            "replay.pause": Property(
                bool, default=False, on_change=replay.tempo.pause, doc="Whether it holds."
            ),
            "replay.speed": Property(
                float,
                default=replay.tempo.speed,
                least=0,
                most=1e6,
                on_change=replay.tempo.set_speed,
                doc="2 for twice as fast, 0 for as fast as possible.",
            ),
            "replay.position_s": reading(float, "Where in the recording it is."),
            "replay.length_s": reading(float, "How long the recording is.", replay.stats.length_s),
            "replay.frames": reading(int, "Frames that were published."),
        },
        commands={"replay.stop": Command(lambda _: replay.stop(), doc="Ends it.")},
        refresh=refresh,
        config=config,
    )
