"""Journals are read and their lines recognised in a process of its own.

libsystemd maps journal files: on a dead disk every look at them hangs, and a file that is overwritten in place kills
whoever reads it. Neither may happen to the process that answers scrapes. And while a backlog is read, two processors
work on it: this process reads, the daemon counts.
"""
