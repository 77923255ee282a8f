"""Ways to replace groups without a learning signal, one file each: NAME.py has Name."""
