"""Generated stories about numbers, whose arithmetic a policy may leave to a tool."""
