"""Commands that work on recordings with Spark."""
