"""Shared memory that CUDA copies from at full speed.

A copy from ordinary memory to a GPU goes through a staging buffer; from memory that CUDA knows it goes
straight. A consumer's mappings are read-only, which CUDA accepts when it is told so.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, Final

from tensor_pool.closing import Closing

if TYPE_CHECKING:
    from tensor_pool._native import RingReader

__all__ = ["HostRegistration"]

_LOG: Final = logging.getLogger(__name__)

_READ_ONLY: Final = 0x08  # cudaHostRegisterReadOnly
_SUCCESS: Final = 0


class HostRegistration(Closing):
    """The mappings of one reader, known to CUDA until this is closed.

    Where CUDA refuses, nothing is lost but speed: copies then go through a staging buffer.

    Args:
        torch: The module.
        reader: Whose mappings; kept mapped until `close`.
    """

    def __init__(self, torch: Any, reader: RingReader) -> None:
        self.reader = reader
        self._runtime = torch.cuda.cudart()
        self._registered: list[int] = []
        for pool_id, address, nbytes in reader.payload_mappings():
            code = int(self._runtime.cudaHostRegister(address, nbytes, _READ_ONLY))
            if code == _SUCCESS:
                self._registered.append(address)
            else:
                _LOG.warning("CUDA refuses pool %d (error %d): copies will be slower", pool_id, code)

    @property
    def pools(self) -> int:
        """How many pools CUDA knows."""
        return len(self._registered)

    def close(self) -> None:
        """Lets CUDA forget them; may be called again."""
        while self._registered:
            self._runtime.cudaHostUnregister(self._registered.pop())
