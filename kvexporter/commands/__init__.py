"""One file per command of more than a few lines: its options and what it calls. Heavy imports wait until it runs."""
