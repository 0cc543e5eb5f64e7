"""What people see: the command line, later the consoles."""
