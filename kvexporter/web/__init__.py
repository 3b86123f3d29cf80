"""The HTTP view: metrics, health and a landing page."""
