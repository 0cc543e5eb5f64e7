"""A whole host in one process: media driver and SHM driver, for a first try and for tests."""

from __future__ import annotations

import os
import secrets
import shutil
from typing import TYPE_CHECKING

from tensor_pool.driver import Driver
from tensor_pool.driver.config import DriverSection
from tensor_pool.host.aeron import open_media_driver
from tensor_pool.transport.media import temporary_aeron_dir

if TYPE_CHECKING:
    import contextlib

    from tensor_pool.config import Config

__all__ = ["start_drivers"]


def start_drivers(config: Config, resources: contextlib.ExitStack) -> Config:
    """Starts a media driver and an SHM driver here; gives the configuration with which to join them.

    What nobody configured is made private: a directory of its own for Aeron, and an instance of its own for
    the files, so that any number of programs may do this beside each other.
    """
    private: dict[str, object] = {"aeron.media_driver": "embedded"}
    if not config.aeron.dir:
        private["aeron.dir"] = temporary_aeron_dir()
    if not config.is_set("driver.instance_id"):
        private["driver.instance_id"] = f"embedded-{os.getpid()}-{secrets.token_hex(3)}"
    if not config.is_set("driver.cleanup_on_exit"):
        private["driver.cleanup_on_exit"] = True
    config = config.replace(private)
    resources.enter_context(open_media_driver(config.aeron))
    driver = Driver(config)
    if "driver.instance_id" in private and config[DriverSection].cleanup_on_exit:
        # Nobody can ever ask for an instance of this name again: its lock and its state go too.
        resources.callback(shutil.rmtree, driver.directory, ignore_errors=True)
    resources.enter_context(driver)
    return config
