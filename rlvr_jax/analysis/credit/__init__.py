"""Whether token weights mark the tokens that change a completion's value."""
