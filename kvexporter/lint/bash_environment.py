"""What is wrong with an environment file that bash reads with `.`."""

from __future__ import annotations

from kvexporter.lint.bash_assignments import DECLARES, run_assignments
from kvexporter.lint.bash_commands import Assignment, Command, Parsed, parse_commands, split_assignment
from kvexporter.lint.bash_values import Shell
from kvexporter.lint.bash_words import Word
from kvexporter.lint.findings import HIDDEN, Findings, is_secret_name
from kvexporter.lint.fragments import check_fragments
from kvexporter.lint.places import Source, Traced
from kvexporter.lint.server_variables import check_variables
from kvexporter.lint.words import UNKNOWN, Value

# Commands that an environment file may have good reasons for.
_HARMLESS = frozenset(
    (".", "source", "set", "unset", "shopt", "test", "[", "[[", "true", "false", ":", "echo", "printf", "return",
     "exit", "umask", "ulimit", "alias", "let", "read", "mkdir", "cd", *DECLARES)
)  # fmt: skip
_BYTE_ORDER_MARK = "\ufeff"
_SHOWN = 40


def check_bash_environment(source: Source, out: Findings, build: int | None, *, alone: bool) -> dict[str, Value]:
    """Add what is wrong with the file, `alone` with arguments in it too; give the variables that it is meant to set."""
    text = source.text
    if text.startswith(_BYTE_ORDER_MARK):
        out.add(
            "byte-order-mark", "error", source.base, "the file begins with a byte order mark",
            "bash takes it for a part of the first word, so the first line is not what it seems.",
            source.line(0)[1].removeprefix(_BYTE_ORDER_MARK),
        )  # fmt: skip
        text = " " + text[1:]
    if "\0" in text:
        out.add(
            "nul-byte", "error", source.base + text.index("\0"), "the file holds a NUL byte",
            "bash refuses the file as a binary one or passes over the byte.",
        )  # fmt: skip
        text = text.replace("\0", UNKNOWN)
    ending = text.find("\r\n")
    if ending >= 0:
        out.add(
            "carriage-return", "error", source.base + ending, "lines end with a carriage return, as on Windows",
            "bash takes it for the last character of each value, and llama-server gets it as part of its arguments. "
            "`sed -i 's/\\r$//' FILE` removes them.",
        )  # fmt: skip
        # The rest is judged as if they were removed; places stay as they are.
        text = text.replace("\r\n", " \n")
    parsed = parse_commands(Traced(text, range(source.base, source.base + len(text))))
    _check_broken(parsed, out)
    meant = [_check_command(command, out) for command in parsed.commands]
    _check_twice(parsed, out)
    shell = Shell()
    sourced = run_assignments(parsed, shell)
    variables = dict(shell.variables)
    starts = dict(sourced.assigned)
    for assignment_and_value in meant:
        if assignment_and_value is not None:
            assignment, value = assignment_and_value
            variables[assignment.name] = value
            starts.setdefault(assignment.name, assignment.start)
    check_variables(variables, starts, out, build)
    if alone:
        check_fragments(variables, starts, out, build)
    return variables


def _check_broken(parsed: Parsed, out: Findings) -> None:
    if parsed.broken_at is None:
        return
    what = parsed.broken_by
    quote = what in ("'", '"', "$'", "`")
    out.add(
        "unclosed-quote" if quote else "syntax-error", "error", parsed.broken_at,
        f"nothing closes this {what}" if quote or what[-1:] in "({[" else f"{what} has no place here",
        "bash reports a syntax error and passes over this line and all that follows.",
    )  # fmt: skip


def _check_command(command: Command, out: Findings) -> tuple[Assignment, Value] | None:
    """Add what is wrong with one command; give the assignment that was meant, if one can be guessed."""
    if not command.words:
        return None
    first = command.words[0]
    name = first.literal
    if name in DECLARES:
        return _check_declaration(command, out)
    if command.assignments and name not in _HARMLESS and not (name or "").startswith("/"):
        return _check_unquoted(command.assignments[-1], command.words, command.end, out, f"runs {_shown(command)}")
    second = command.words[1].literal if len(command.words) > 1 else None
    if name is not None and second is not None and second.startswith("=") and name.isidentifier():
        _check_spaces(command, name, out)
    elif name is not None and "=" in name and not name.startswith(("-", "/", "=")):
        _invalid_name(first, name, out)
    elif name is not None and name.startswith("-"):
        out.add(
            "not-an-assignment", "error", first.start, f"{name[:_SHOWN]} stands alone: it belongs to no variable",
            f"bash runs a command called {name[:_SHOWN]}, which does not exist: exit status 127.",
        )  # fmt: skip
    elif name is not None and name not in _HARMLESS:
        out.add(
            "runs-a-command", "warning", first.start, f"this is a command, {name[:_SHOWN]}, and no assignment",
            "bash runs it whenever it reads the file; with systemd the line does nothing.",
        )  # fmt: skip
    return None


def _shown(command: Command) -> str:
    if any(is_secret_name(assignment.name) for assignment in command.assignments):
        return f"a command called {HIDDEN}"
    name = command.words[0].literal
    return f"a command called {name[:_SHOWN]}" if name else "what follows it as a command"


def _check_unquoted(
    assignment: Assignment, words: list[Word], end: int, out: Findings, does: str
) -> tuple[Assignment, Value]:
    """White space outside quotes ended a value."""
    start = assignment.value.start
    source = out.book.source(start)
    raw = source.text[start - source.base : end - source.base]
    meant = _meant(assignment, words, raw)
    name = assignment.name
    quoted = ""
    if "\n" not in raw and not set(raw) & set("\"'`\\"):
        quoted = out.book.replaced(start, end, f'"{raw.strip()}"')
    elif "\n" not in raw and not set(raw) & set("'$`\\"):
        quoted = out.book.replaced(start, end, f"'{raw.strip()}'")
    happens = (
        f"bash sets {name} for one command only, and {does}, which does not exist: exit status 127; {name} stays unset."
    )
    if "export" in does:
        happens = f"bash sets {name} to the first word only, and {does}."
    out.add(
        "unquoted-value", "error", assignment.start, f"the value of {name} has spaces and no quotes", happens, quoted
    )
    return assignment, meant


def _meant(assignment: Assignment, words: list[Word], raw: str) -> Value:
    """The whole value as it was meant, where it holds no quotes or expansions."""
    if set(raw) & set("\"'`\\$\n"):
        return None
    start = assignment.value.start
    return Traced(raw, range(start, start + len(raw)))


def _check_declaration(command: Command, out: Findings) -> tuple[Assignment, Value] | None:
    """`export NAME=value more words`."""
    last: Assignment | None = None
    for at, word in enumerate(command.words[1:], 1):
        assignment = split_assignment(word)
        if assignment is not None:
            last = assignment
            continue
        text = word.literal
        if text is None or (text.isidentifier() and last is None) or (text.startswith("-") and last is None):
            continue
        if text.isidentifier() and text.isupper():
            continue  # `export A=1 B`
        if last is not None:
            rest = command.words[at:]
            return _check_unquoted(
                last,
                rest,
                command.end,
                out,
                f"export refuses “{HIDDEN if is_secret_name(last.name) else text[:_SHOWN]}”",
            )
        if text.startswith("="):
            out.add(
                "spaces-around-equals", "error", word.start, "white space before or after =",
                "export refuses it: not a valid identifier. The variable stays unset.",
            )  # fmt: skip
        elif "=" in text:
            _invalid_name(word, text, out)
        return None
    return None


def _check_spaces(command: Command, name: str, out: Findings) -> None:
    start, end = command.words[1].start, command.end
    source = out.book.source(start)
    raw = source.text[start - source.base : end - source.base].removeprefix("=").strip()
    spaces = any(character in raw for character in " \t") and raw[:1] not in "'\""
    value = f'"{raw}"' if spaces and '"' not in raw else raw
    out.add(
        "spaces-around-equals", "error", command.start, "white space before or after =",
        f"bash runs a command called {name[:_SHOWN]}, which does not exist: exit status 127. It stays unset.",
        out.book.replaced(command.start, end, f"{name}={value}"),
    )  # fmt: skip


def _invalid_name(word: Word, text: str, out: Findings) -> None:
    name = text.partition("=")[0][:_SHOWN]
    out.add(
        "invalid-name", "error", word.start, f"“{name}” cannot be the name of a variable",
        "bash runs it as a command, which does not exist: exit status 127. Names are letters, digits and _.",
    )  # fmt: skip


def _check_twice(parsed: Parsed, out: Findings) -> None:
    seen: dict[str, int] = {}
    for command in parsed.commands:
        made = list(command.assignments) if not command.words else []
        if command.words and command.words[0].literal in DECLARES:
            made = [found for word in command.words[1:] if (found := split_assignment(word)) is not None]
        for assignment in made:
            uses_itself = any(
                part.kind == "variable" and part.value.text == assignment.name for part in assignment.value.parts
            )
            if assignment.name in seen and command.certain and not assignment.append and not uses_itself:
                out.add(
                    "set-twice", "warning", seen[assignment.name], f"{assignment.name} is set again further down",
                    "The last one counts.",
                )  # fmt: skip
            if command.certain:
                seen[assignment.name] = assignment.start
