"""The dot commands of `alluvia sql`, at the prompt and in scripts."""

from __future__ import annotations

from alluvia.cli.terminal.output import note, show
from alluvia.cli.terminal.prompt_text import DOT_COMMANDS
from alluvia.errors import Invalid
from alluvia.nearest_name import did_you_mean

_TABLES = (
    "SELECT table_name AS name, CASE table_type WHEN 'VIEW' THEN 'view' ELSE 'table' END AS type "
    "FROM information_schema.tables WHERE table_schema = 'main' ORDER BY name"
)


class DotCommands:
    """Carries dot commands out. `timing` is whether to show how long each statement takes."""

    timing = False

    def run(self, text: str) -> str | None:
        """Run a dot command, or return SQL for it. Raises `Invalid` for an unknown one."""
        name, *words = text.rstrip("; \t\r\n").split()
        match name, words:
            case ".help", []:
                show(({"command": each, "": what} for each, what in DOT_COMMANDS.items()), as_json=False)
            case ".tables", []:
                return _TABLES
            case ".schema", [table]:
                return f"DESCRIBE {table}"
            case ".timing", []:
                self.timing = not self.timing
                note(f"Timing is {'on' if self.timing else 'off'}.")
            case _:
                near = did_you_mean(name, (each for each in DOT_COMMANDS if each != name))
                fix = near or ".help lists the commands"
                raise Invalid(f"there is no command {' '.join((name, *words))!r}: {fix}")
        return None
