"""Arithmetic in a finite field: a world whose strategies are known exactly."""
