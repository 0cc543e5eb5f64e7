"""Which versions and block lengths of a message are accepted: all such rules, in one place.

- Schema and template ids are exact; an unknown one is ignored and counted, never an error (decision B13).
- Version 1 is required, except for schema 900, whose later versions may only add fields: 1 or above.
- A block shorter than the schema's is refused. A longer one is accepted, its end skipped, except for the
  templates that exist in two dialects under one version: there only the two known lengths (decision B10).
- The blocks of group entries follow the same rule as the block of their message.
- An EventMessage may have 40 bytes or more [SVC-5.1-1], or exactly the 38 that strict SBE parsers make of
  it (decision B8).
- A message ends where its last field ends. Aeron delivers exact lengths, so bytes behind it mean that one
  of the lengths inside is wrong: malformed.
- The one exception: a DiscoveryRequest may lack the length of its last field, which counts as 0 (K9).
"""

from __future__ import annotations

from typing import Final

__all__ = ["accepts_version", "is_extensible", "may_lack_last_prefix"]

_VERSION: Final = 1
_OPEN_ENDED_SCHEMAS: Final = frozenset({900})

_DRIVER, _BRIDGE, _DISCOVERY = 901, 902, 910
_TWO_DIALECTS: Final = frozenset({(_DRIVER, 1), (_DRIVER, 2), (_BRIDGE, 1)})
_MAY_LACK_LAST_PREFIX: Final = frozenset({(_DISCOVERY, 1)})


def accepts_version(schema_id: int, version: int) -> bool:
    """Whether messages of this version are decoded.

    Example:
        >>> accepts_version(900, 2), accepts_version(901, 2), accepts_version(900, 0)
        (True, False, False)
    """
    return version == _VERSION or (schema_id in _OPEN_ENDED_SCHEMAS and version > _VERSION)


def is_extensible(schema_id: int, template_id: int) -> bool:
    """Whether blocks longer than the schema's are accepted.

    Example:
        >>> is_extensible(900, 4), is_extensible(902, 1)
        (True, False)
    """
    return (schema_id, template_id) not in _TWO_DIALECTS


def may_lack_last_prefix(schema_id: int, template_id: int) -> bool:
    """Whether the last length prefix may be missing at the very end (decision K9).

    Example:
        >>> may_lack_last_prefix(910, 1), may_lack_last_prefix(910, 2)
        (True, False)
    """
    return (schema_id, template_id) in _MAY_LACK_LAST_PREFIX
