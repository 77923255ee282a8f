"""How well cheap estimates rank problems by their influence, over runs: `estimates`."""
