"""The supervisor: knows how all producers and consumers of a host are doing, and moves those that lag.

What decides (`judging`, `health`, `desk`, `journal`) has no thread, clock or socket; `agent` moves messages.
"""
