"""Which training metrics warn of a fall of held-out pass@1: `analysis warnings`."""
