"""The advantage rules that a config can name, one file each: NAME.py has class Name."""
