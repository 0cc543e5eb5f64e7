"""Whole frames between hosts: cut into chunks, carried by Aeron over UDP, put together in a ring there."""
