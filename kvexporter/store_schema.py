"""The tables of the store's file, and what files of earlier versions lack of them."""

SCHEMA_VERSION = 3

_FIRST_TABLES = """
CREATE TABLE feed (
  key TEXT PRIMARY KEY,          -- which journal entries
  position TEXT NOT NULL,        -- the last one that was counted
  gaps INTEGER NOT NULL,         -- times that entries were gone before they were read
  servers BLOB NOT NULL,         -- JSON: server name to what was counted
  updated REAL NOT NULL
) WITHOUT ROWID;
CREATE TABLE incident (
  server TEXT NOT NULL,
  number INTEGER NOT NULL,       -- counts up from 1
  ended REAL NOT NULL,
  detail BLOB NOT NULL,          -- JSON
  PRIMARY KEY (server, number)
) WITHOUT ROWID;
CREATE TABLE origin (
  replaced REAL NOT NULL         -- when this file took the place of one that could not be read; else no row
);
CREATE TABLE request (
  server TEXT NOT NULL,
  number INTEGER NOT NULL,       -- counts up from 1
  ended REAL NOT NULL,
  tokens INTEGER NOT NULL,       -- prompt and answer
  PRIMARY KEY (server, number)
) WITHOUT ROWID;
"""
_START_TABLE = """
CREATE TABLE start (
  server TEXT NOT NULL,
  began REAL NOT NULL,           -- when the process started
  detail BLOB NOT NULL,          -- JSON
  ended REAL NOT NULL,           -- when it was written
  PRIMARY KEY (server, began)
) WITHOUT ROWID;
"""
"""Since version 2."""
_ALERTS_TABLE = """
CREATE TABLE alerts (
  id INTEGER PRIMARY KEY CHECK (id = 1),
  detail BLOB NOT NULL           -- JSON: the alerts that were sent straight from here, and who was told of them
);
"""
"""Since version 3."""

SCHEMA = _FIRST_TABLES + _START_TABLE + _ALERTS_TABLE
"""All tables."""
MIGRATIONS = {1: _START_TABLE + _ALERTS_TABLE, 2: _ALERTS_TABLE}
"""Version of a file → what it lacks."""
