"""The demonstration: llama-server stand-ins live through stories at once, and the real exporter watches them.

A stand-in answers over HTTP and prints its log as the real server does (dialect.py); its log goes into a real journal,
with what systemd says of its unit. What the servers live through is composed from what their clients ask for
(composing.py, tales.py), but for the end of the agents' pool, which is a recording (story.py). The exporter is not told
that it watches stand-ins. standin.py plays the recording alone, for benchmarks and tests.
"""
