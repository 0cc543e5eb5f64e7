"""Other libraries' tensors and tables; each module imports its library only when it is used."""
