"""The alert and recording rules for Prometheus, and what else must agree with them: thresholds, texts, links."""
