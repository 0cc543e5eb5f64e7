"""Commands about one stream: what it is, how fast, how late, what is lost, what it shows."""
