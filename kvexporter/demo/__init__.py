"""The demonstration: a recorded incident is replayed by a llama-server stand-in, and the real exporter watches it.

The stand-in answers over HTTP and prints its log as the recorded server did; its log goes into a real journal. The
exporter is not told that it watches a recording.
"""
