"""Whether token weights lie on the tokens that change a completion's value."""
