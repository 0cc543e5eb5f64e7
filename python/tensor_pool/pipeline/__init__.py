"""From live streams to files, tables and training sets. Needs the extra ``record``."""
