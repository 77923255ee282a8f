"""Experiments: arms of a recipe, over seeds, run one after the other."""
