"""What programs are told that did not get a stream, where a pool knows more than the driver says."""

from __future__ import annotations

import re
import weakref
from typing import TYPE_CHECKING, Final

from tensor_pool.errors import AttachRefusedError, NoDriverError

if TYPE_CHECKING:
    from tensor_pool.pool.producer import Producer

__all__ = ["name_own_producer", "no_driver_error", "not_expected_error", "open_producers"]

_HOLDER: Final = re.compile(r"has a producer: client (\d+)")
"""What our own driver says; of others' texts nothing is made."""

open_producers: Final[weakref.WeakSet[Producer]] = weakref.WeakSet()
"""Those of this process: a second one of a stream is mostly a slip of the same program."""


def no_driver_error(
    aeron_dir: str, *, found: str = "", otherwise: str = "use tensor_pool.connect(embedded=True)"
) -> NoDriverError:
    """What to say when nobody answers, and what was found instead, if anything."""
    return NoDriverError(
        f"no SHM driver answers{f' ({found})' if found else ''}",
        where=aeron_dir,
        hint=f"start one with `tpool up --aeron-dir {aeron_dir}`, or {otherwise}",
    )


def not_expected_error(aeron_dir: str) -> NoDriverError:
    """What to say to who has said that there is no driver, and asks for what only one can give."""
    return NoDriverError(
        "no SHM driver answers, and the pool was connected with driver=False",
        where=aeron_dir,
        hint="give attach=False to producers and consumers (nobody lists streams), or leave out driver=False",
    )


def name_own_producer(error: AttachRefusedError) -> AttachRefusedError:
    """A refusal with a better hint where the producer in the way is one of this process."""
    found = _HOLDER.search(error.message)
    if found is None or all(other.client_id != int(found[1]) for other in list(open_producers)):
        return error
    own = AttachRefusedError(
        error.message,
        hint="that producer is one of this very program: publish through it, or close() it first",
    )
    own.may_pass = error.may_pass  # another thread may close it
    return own
