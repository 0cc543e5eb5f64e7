"""A whole host in one process: media driver and SHM driver, for a first try and for tests."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tensor_pool.driver import DriverSection
from tensor_pool.driver.files import namespace_directory
from tensor_pool.errors import TransportError
from tensor_pool.host.aeron import open_media_driver
from tensor_pool.host.driver import open_driver
from tensor_pool.host.instances import (
    new_instance_id,
    remove_dead_instances,
    remove_dead_media,
    remove_instance,
)
from tensor_pool.transport.media import is_alive, temporary_aeron_dir

if TYPE_CHECKING:
    import contextlib

    from tensor_pool.config import Config

__all__ = ["start_drivers"]


def start_drivers(config: Config, resources: contextlib.ExitStack) -> Config:
    """Starts a media driver and an SHM driver here; gives the configuration with which to join them.

    What nobody configured is made private: a directory of its own for Aeron, and an instance of its own for
    the files, so that any number of programs may do this beside each other. Both go with the program; what
    killed programs left goes now.

    Raises:
        TransportError: Somebody else's media driver serves the configured directory.
    """
    private: dict[str, object] = {"aeron.media_driver": "embedded"}
    if not config.aeron.dir:
        private["aeron.dir"] = temporary_aeron_dir()
        remove_dead_media()
    if not config.is_set("driver.cleanup_on_exit"):
        private["driver.cleanup_on_exit"] = True
    if not config.is_set("driver.instance_id"):
        private["driver.instance_id"] = new_instance_id()
        remove_dead_instances(config.shm)
    dir_origin = config.origin("aeron.dir")
    config = config.replace(private)
    try:
        resources.enter_context(open_media_driver(config.aeron))
    except TransportError as e:
        if not is_alive(config.aeron.dir):
            raise
        raise TransportError(
            f"embedded=True starts drivers of its own, but {e.message}",
            where=f"aeron.dir, from {dir_origin}",
            hint="leave out embedded=True to join those that run there, or give another aeron_dir",
        ) from None
    if "driver.instance_id" in private:
        instance_id = config[DriverSection].instance_id
        resources.callback(remove_instance, namespace_directory(config.shm, instance_id))
    resources.enter_context(open_driver(config))
    return config
