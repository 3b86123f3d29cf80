"""The language floor: llama-server's words as typed values.

Pure functions only. Every build's dialect ends here: nothing above this package compares a build number or looks at the
text of a log line.
"""
