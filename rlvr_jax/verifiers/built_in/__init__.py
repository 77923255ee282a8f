"""The verifiers that a problem can name, one file each: NAME.py has class Name."""
