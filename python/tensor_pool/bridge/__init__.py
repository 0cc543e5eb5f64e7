"""The bridge: whole frames between hosts over Aeron UDP."""
