"""kvexporter: a Prometheus exporter and alerting daemon for the KV pool of llama-server."""

__version__ = "0.1.0"
