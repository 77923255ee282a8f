"""Generated stories about numbers; a policy may use a tool for the arithmetic."""
