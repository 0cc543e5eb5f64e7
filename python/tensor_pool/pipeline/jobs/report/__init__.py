"""Reports of jobs: what one says (`model`), its plots (`plots`), its page (`page`), its files (`files`)."""
