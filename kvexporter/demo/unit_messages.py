"""What systemd says in the journal about a unit: the fields of its messages, as version 252 writes them. Pure."""

from __future__ import annotations

from kvexporter.sources import systemd_messages as known

Fields = dict[str, str]


def started(unit: str, description: str) -> Fields:
    """It has been started."""
    return _entry(unit, known.STARTED, f"Started {unit} - {description}.", 6, JOB_TYPE="start", JOB_RESULT="done")


def stopped(unit: str, description: str) -> Fields:
    """It is down before it is started again."""
    text = f"Stopped {unit} - {description}."
    return _entry(unit, known.STOPPED, text, 6, JOB_TYPE="restart", JOB_RESULT="done")


def exited(unit: str, status: int) -> Fields:
    """Its main process has ended with that status, which is not 0."""
    # systemd has names for some statuses of services: 1 is FAILURE, 127 has none.
    name = {1: "FAILURE"}.get(status, "n/a")
    text = f"{unit}: Main process exited, code=exited, status={status}/{name}"
    fields = {"EXIT_CODE": "exited", "EXIT_STATUS": str(status), "COMMAND": "ExecStart"}
    return _entry(unit, known.PROCESS_EXIT, text, 5, **fields)


def failed(unit: str) -> Fields:
    """It has failed because of that."""
    text = f"{unit}: Failed with result 'exit-code'."
    return _entry(unit, known.FAILURE_RESULT, text, 4, UNIT_RESULT="exit-code")


def restart_scheduled(unit: str, restarts: int) -> Fields:
    """It will be started again."""
    text = f"{unit}: Scheduled restart job, restart counter is at {restarts}."
    return _entry(unit, known.RESTART_SCHEDULED, text, 6, N_RESTARTS=str(restarts))


def _entry(unit: str, message_id: bytes, text: str, priority: int, **fields: str) -> Fields:
    return {
        "SYSLOG_FACILITY": "3",
        "SYSLOG_IDENTIFIER": "systemd",
        "_TRANSPORT": "journal",
        "_PID": "1",
        "_UID": "0",
        "_COMM": "systemd",
        "_SYSTEMD_UNIT": "init.scope",
        "PRIORITY": str(priority),
        "UNIT": unit,
        "MESSAGE_ID": message_id.decode(),
        "MESSAGE": text,
        **fields,
    }
