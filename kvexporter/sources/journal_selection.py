"""Which journal entries belong to one server: a unit, or any given groups of fields.

The groups for units are those of `journalctl -u` and `journalctl --user-unit`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

MatchGroup = tuple[tuple[str, str], ...]
"""Fields with their values; an entry belongs to the group when it has all of them."""

MESSAGE_ID_COREDUMP = "fc2e22bc6ee647b6b90729ab34a250b1"

_FIELD_NAME = re.compile(r"[A-Z_][A-Z0-9_]{0,63}")
_UNIT_SUFFIXES = (
    ".service",
    ".socket",
    ".device",
    ".mount",
    ".automount",
    ".swap",
    ".target",
    ".path",
    ".timer",
    ".slice",
    ".scope",
)


class AcceptsMatches(Protocol):
    """The part of the low-level reader that takes matches."""

    def add_match(self, match: str, /) -> None:
        """AND within a group (OR between values of one field)."""

    def add_disjunction(self) -> None:
        """Start the next group."""


@dataclass(frozen=True, slots=True)
class JournalSelection:
    """What to follow: exactly one of a unit, a user unit or match groups; or, with a directory, everything in it.

    ValueError when the combination or a field name is impossible.
    """

    unit: str | None = None
    """A system unit, template instances included; `.service` is added where the type is missing, as journalctl does."""
    user_unit: str | None = None
    """A unit of a user's own systemd."""
    uid: int | None = None
    """Whose user unit it is. None: anybody's of that name."""
    matches: tuple[Mapping[str, str], ...] = ()
    """Groups of FIELD → value: the fields of a group are ANDed, the groups are ORed."""
    directory: str | None = None
    """A folder with journal files, instead of the host's own journal."""
    namespace: str | None = None
    """A journal namespace (`LogNamespace=`)."""

    def __post_init__(self) -> None:
        kinds = sum((self.unit is not None, self.user_unit is not None, bool(self.matches)))
        if kinds > 1:
            raise ValueError("a journal selection takes one of unit, user_unit and matches, not several")
        if kinds == 0 and self.directory is None:
            raise ValueError("a journal selection needs a unit, a user_unit, matches or a directory")
        if self.directory is not None and self.namespace is not None:
            raise ValueError("a journal selection takes a directory or a namespace, not both")
        if self.uid is not None and self.user_unit is None:
            raise ValueError("uid belongs to user_unit")
        for name in (self.unit, self.user_unit):
            if name is not None and (not name or "/" in name or "\0" in name):
                raise ValueError(f"{name!r} is not a unit name")
        for group in self.matches:
            if not group:
                raise ValueError("a group of journal matches is empty")
            for field, value in group.items():
                if not _FIELD_NAME.fullmatch(field):
                    raise ValueError(f"{field!r} is not a journal field: capitals, digits and _ only")
                if not value:
                    raise ValueError(f"the journal match {field} has no value")

    @property
    def about(self) -> str | None:
        """The unit's full name, where one unit is followed: the one systemd's messages must be about."""
        name = self.unit if self.unit is not None else self.user_unit
        return None if name is None else full_unit_name(name)

    @property
    def groups(self) -> tuple[MatchGroup, ...]:
        """The match groups; none means every entry."""
        if self.unit is not None:
            return unit_groups(full_unit_name(self.unit))
        if self.user_unit is not None:
            return user_unit_groups(full_unit_name(self.user_unit), self.uid)
        return tuple(tuple(group.items()) for group in self.matches)

    @property
    def of_its_processes(self) -> JournalSelection:
        """What the unit's own processes wrote, without what systemd says about it; itself where it is no unit's."""
        if self.about is None:
            return self
        own = {"_SYSTEMD_UNIT" if self.unit is not None else "_SYSTEMD_USER_UNIT": self.about}
        return JournalSelection(matches=(own,), directory=self.directory, namespace=self.namespace)

    def __str__(self) -> str:
        what = self.about or " or ".join("+".join(f"{k}={v}" for k, v in group.items()) for group in self.matches)
        where = self.directory or (f"namespace {self.namespace}" if self.namespace else "")
        return " in ".join(part for part in (what, where) if part)


def full_unit_name(name: str) -> str:
    """The unit's name with its type, `.service` when it has none."""
    return name if name.endswith(_UNIT_SUFFIXES) else name + ".service"


def unit_groups(unit: str) -> tuple[MatchGroup, ...]:
    """The unit's own lines, and what PID 1, root's services and systemd-coredump say about it (as `journalctl -u`).

    The rarest field comes first: where a file has no such value, libsystemd looks at no other one at each step.
    """
    groups: list[MatchGroup] = [
        (("_SYSTEMD_UNIT", unit),),
        (("UNIT", unit), ("_PID", "1")),
        (("OBJECT_SYSTEMD_UNIT", unit), ("_UID", "0")),
        (("COREDUMP_UNIT", unit), ("_UID", "0"), ("MESSAGE_ID", MESSAGE_ID_COREDUMP)),
    ]
    if unit.endswith(".slice"):
        groups.append((("_SYSTEMD_SLICE", unit),))
    return tuple(groups)


def user_unit_groups(unit: str, uid: int | None) -> tuple[MatchGroup, ...]:
    """The same for a unit of a user's systemd (as `journalctl --user-unit`, which demands the caller's uid)."""
    whose: MatchGroup = () if uid is None else (("_UID", str(uid)),)
    return (
        (("_SYSTEMD_USER_UNIT", unit), *whose),
        (("USER_UNIT", unit), *whose),
        # Two values of one field are alternatives: root or that user.
        (("OBJECT_SYSTEMD_USER_UNIT", unit), ("_UID", "0"), *whose),
        (("COREDUMP_USER_UNIT", unit), ("_UID", "0"), *whose),
    )


def add_groups(reader: AcceptsMatches, groups: tuple[MatchGroup, ...]) -> None:
    """Restrict a reader to entries of any of the groups. ValueError when libsystemd refuses a match."""
    for index, group in enumerate(groups):
        if index:
            reader.add_disjunction()
        for field, value in group:
            reader.add_match(f"{field}={value}")


def narrowed(groups: tuple[MatchGroup, ...], *extra: tuple[str, str]) -> tuple[MatchGroup, ...]:
    """The groups with more fields demanded; groups that demand another value of such a field are left out.

    They cannot just be added: libsystemd takes two values of one field as alternatives.
    """
    demanded = dict(extra)
    return tuple(
        (*(match for match in group if match[0] not in demanded), *extra)
        for group in groups
        if all(demanded.get(field, value) == value for field, value in group)
    )
