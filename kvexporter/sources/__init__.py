"""The sources floor: the only code that touches the outside world.

Sources hand on what they read; they do not interpret llama-server's words and know nothing of Prometheus.
"""
