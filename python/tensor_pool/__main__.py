"""``python -m tensor_pool`` is ``tpool``, for where that is not on the path."""

from tensor_pool.ops.cli import main

main()
