"""Checks of the files that start a llama-server, before it is started: what is wrong, where, and what would happen.

Pure: texts go in, findings come out. Nothing of what is checked is ever executed.
"""
