"""Which training metrics warn before held-out pass@1 falls: `analysis warnings`."""
