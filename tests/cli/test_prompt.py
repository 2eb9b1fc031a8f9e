"""The prompt of `alluvia sql`, typed at on a pseudo-terminal, and its parts."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

import alluvia
from alluvia.cli.prompt import CommitNote, history_path
from alluvia.cli.terminal.prompt_text import completions, ends_prompt, is_complete
from tests.cli.terminals import Typist, typing

ENTER, TAB, UP, CTRL_C, CTRL_D = "\r", "\t", "\x1b[A", "\x03", "\x04"
SLOW = "SELECT levenshtein(repeat('ab', 10000000), repeat('ba', 10000000))::VARCHAR;"


def ask(prompt: Typist, text: str, *shown: str, ready: str = "alluvia>") -> str:
    """Type a line, and return what is shown up to the next prompt."""
    prompt.type(text + ENTER)
    return prompt.until(text[-30:] + "\n", *shown, ready)


def test_an_afternoon_at_the_prompt(tmp_path: Path) -> None:
    lake, state = tmp_path / "lake", tmp_path / "state"
    with typing(["sql", "--lake", str(lake)], XDG_STATE_HOME=str(state)) as prompt:
        assert ".help shows more" in prompt.until("alluvia>")
        ask(prompt, "CREATE TABLE events (ts TIMESTAMP, kind VARCHAR);")
        ask(prompt, "INSERT INTO events", ready="...>")
        assert "rows_inserted" in ask(prompt, "VALUES (NULL, 'a;b'), (NULL, 'c');")
        assert "a;b" in ask(prompt, "SELECT kind FROM events WHERE kind LIKE '%;%';")
        error = ask(prompt, "SELECT nope FROM events;")
        assert "LINE 1: SELECT nope FROM events" in error
        assert "\n               ^\n" in error
        # A transaction over several lines, and one that is rolled back.
        ask(prompt, "BEGIN;", ready="alluvia*>")
        ask(prompt, "DELETE FROM events;", ready="alluvia*>")
        assert "0" in ask(prompt, "SELECT count(*) AS n FROM events;", ready="alluvia*>").split()
        assert alluvia.connect(str(lake)).table("events").count() == 2
        ask(prompt, "ROLLBACK;")
        assert "2" in ask(prompt, "SELECT count(*) AS n FROM events;").split()
        ask(prompt, "BEGIN;", ready="alluvia*>")
        ask(prompt, "DELETE FROM events WHERE kind = 'c';", ready="alluvia*>")
        ask(prompt, "COMMIT;")
        assert alluvia.connect(str(lake)).table("events").count() == 1
        ask(prompt, "BEGIN;", ready="alluvia*>")
        ask(prompt, "DELETE FROM events;", ready="alluvia*>")
        prompt.type(CTRL_D)
        assert "The open transaction was rolled back." in prompt.end()
        assert prompt.process.returncode == 0
    assert alluvia.connect(str(lake)).table("events").count() == 1
    history = state / "alluvia" / "sql_history"
    assert "+INSERT INTO events\n+VALUES (NULL, 'a;b'), (NULL, 'c');\n" in history.read_text()
    assert stat.S_IMODE(history.stat().st_mode) == 0o600
    assert not [path for path in lake.rglob("*") if "history" in path.name]


def test_keys_and_dot_commands(tmp_path: Path) -> None:
    lake, state = tmp_path / "lake", tmp_path / "state"
    made = alluvia.connect(str(lake)).create_table("clicks", {"visitor": "string", "two-words": "long"})
    made.append([{"visitor": "v\x1b[31m1", "two-words": 1}])
    (state / "alluvia").mkdir(parents=True)
    (state / "alluvia" / "sql_history").write_text("\n# then\n+SELECT 41 +\n+1 AS answer;\n")
    with typing(["sql", "--lake", str(lake)], XDG_STATE_HOME=str(state)) as prompt:
        prompt.until("alluvia>")
        # A statement of several lines comes back as one. Only what changes is drawn.
        prompt.type(UP + ENTER)
        prompt.until("answer\n", "42\n", "alluvia>")
        prompt.type("SEL" + TAB)
        prompt.until("SEL", "ECT")
        prompt.type(" 1;" + CTRL_C)
        prompt.until("alluvia>")
        prompt.type("SELECT * FROM cli" + TAB)
        prompt.until("cli", "cks")
        prompt.type(" WHERE vis" + TAB)
        prompt.until("vis", "itor")
        assert r"v\x1b[31m1" in ask(prompt, " LIKE 'v%';")
        assert "string" in ask(prompt, ".schema clicks")
        assert "clicks" in ask(prompt, ".tables")
        ask(prompt, "CREATE VIEW visits AS FROM clicks;")
        for text in ("\\d", "\\dt", "\\d+"):
            shown = [line.split() for line in ask(prompt, text).splitlines()]
            assert ["clicks", "table"] in shown
            assert ["visits", "view"] in shown
        assert "two-words" in ask(prompt, "\\d visits")
        assert ".timing" in ask(prompt, "help")
        assert "there is no command '\\\\x'" in ask(prompt, "\\x")
        assert ".timing" in ask(prompt, ".help")
        assert "Timing is on." in ask(prompt, ".timing")
        assert "Time: 0." in ask(prompt, "SELECT 1;")
        assert "there is no command '.nope'" in ask(prompt, ".nope")
        # Ctrl-C stops the statement, and nothing else.
        prompt.type(f"INSERT INTO clicks (visitor) {SLOW}{ENTER}")
        prompt.until("running: ", " s")  # a busy machine shows no second of its own
        prompt.type(CTRL_C)
        prompt.until("Cancelled: nothing was committed.", "alluvia>")
        assert alluvia.connect(str(lake)).table("clicks").version == 1
        assert "7" in ask(prompt, "SELECT 7 AS n;").split()
        prompt.type("exit" + ENTER)
        prompt.end()
        assert prompt.process.returncode == 0


def test_a_commit_that_has_begun_is_noted() -> None:
    store = CommitNote(alluvia.connect("memory://noted").store)
    store.put("data", b"")
    assert not store.begun
    store.put_if_absent("commit", b"")
    assert store.begun


@pytest.mark.parametrize(
    ("text", "complete"),
    [
        ("SELECT 1", False),
        ("SELECT 1;", True),
        ("SELECT 1; -- with a comment", True),
        ("SELECT 1 --;", False),
        ("SELECT ';'", False),
        ("SELECT 'it''s;", False),
        ("SELECT ';';", True),
        ('SELECT ";', False),
        ("SELECT $$;$$", False),
        ("SELECT $a$;$$;$a$;", True),
        ("SELECT $1;", True),
        ("SELECT $name;", True),
        ("SELECT 1 /* ; /* nested */ ;", False),
        ("SELECT 1 /* ; /* nested */ */;", True),
        ("SELECT (1;", True),
        ("SELECT 1); ", True),
        ("", True),
        ("  ", True),
        (".help", True),
        ("help", True),
        ("\\d", True),
        ("\\d clicks", True),
        ("help me", False),
        ("exit", True),
        ("Quit;", True),
        (";", True),
    ],
)
def test_enter_runs_what_is_complete(text: str, complete: bool) -> None:
    assert is_complete(text) is complete


@pytest.mark.parametrize(
    ("text", "ends"), [("exit", True), (" QUIT ;", True), (".exit", True), ("\\q", True), ("exits;", False)]
)
def test_words_that_leave(text: str, ends: bool) -> None:
    assert ends_prompt(text) is ends


COLUMNS = {"events": ["ts", "two words", "kind"], "totals": ["n", 'a"b'], "empty": []}
COLUMNS |= {"bronze.events": ["n"], "bronze.users": ["id", "kind"]}


@pytest.mark.parametrize(
    ("text", "word", "found"),
    [
        ("sel", "sel", ["select"]),
        ("SEL", "SEL", ["SELECT"]),
        ("SELECT * FROM e", "e", ["empty", "events", "else", "end", "except", "exists", "explain"]),
        ("SELECT k FROM events WHERE ki", "ki", ["kind"]),
        ("SELECT * FROM events WHERE tw", "tw", ['"two words"']),
        ('SELECT * FROM events WHERE "tw', '"tw', ['"two words"']),
        ("SELECT * FROM events WHERE events.", "", ["ts", '"two words"', "kind"]),
        ("SELECT * FROM events AS e JOIN totals t ON e.t", "t", ["ts", '"two words"']),
        ("SELECT * FROM events AS e JOIN totals t ON t.", "", ["n", '"a""b"']),
        ("SELECT * FROM nothing WHERE nothing.", "", []),
        ("SELECT * FROM bro", "bro", ["bronze.events", "bronze.users"]),
        ("SELECT * FROM bronze.", "", ["events", "users"]),
        ('SELECT * FROM "bronze".u', "u", ["users"]),
        ("SELECT * FROM main.e", "e", ["empty", "events"]),
        ("SELECT * FROM bronze.users WHERE bronze.users.", "", ["id", "kind"]),
        ("SELECT * FROM bronze.users WHERE users.k", "k", ["kind"]),
        ("SELECT * FROM bronze.users AS u WHERE u.", "", ["id", "kind"]),
        ("SELECT * FROM bronze.events WHERE ki", "ki", []),
        (".t", ".t", [".tables", ".timing"]),
        (".schema t", "t", ["totals"]),
        (".tables x", "x", []),
        ("SELECT 'it", "it", []),
    ],
)
def test_completions(text: str, word: str, found: list[str]) -> None:
    assert completions(text, ["empty", "events", "totals", "bronze.events", "bronze.users"], COLUMNS.__getitem__) == (
        word,
        found,
    )


def test_the_history_is_where_the_user_keeps_state(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    default = tmp_path / ".local" / "state" / "alluvia" / "sql_history"
    assert history_path({}) == history_path({"XDG_STATE_HOME": "relative"}) == default
    assert history_path({"XDG_STATE_HOME": "/state"}) == Path("/state/alluvia/sql_history")


def test_without_a_place_for_the_history_the_prompt_works(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with typing(["sql", "--lake", str(tmp_path)], XDG_STATE_HOME=str(tmp_path / "file")) as prompt:
        prompt.until("the history is not kept", "alluvia>")
        assert "1" in ask(prompt, "SELECT 1 AS n;").split()
