"""What is seen from outside: `read` does the I/O below a root, `parse` turns text into values."""
