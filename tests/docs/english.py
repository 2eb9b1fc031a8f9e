"""Phrases that readers stumble over, each with a rewrite, and the prose of pages and modules.

`python -m tests.docs.english` lowers the counts of phrases that are left, in `english_left.json`, to those of today.
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
LEFT = Path(__file__).with_name("english_left.json")
"""How often each place still has a phrase. A count may only fall, and is then lowered here."""

Counts = dict[str, dict[str, int]]


class Rule(NamedTuple):
    """A phrase to avoid: `avoid` holds it and `write` says the same without it."""

    name: str
    pattern: str
    reason: str
    avoid: str
    write: str


_START = r"(?:^|(?<=[.:;?!] ))"
_STATEMENT = r"[^.?!\n]*[.;:]"

RULES = (
    Rule(
        "who as a subject",
        rf"{_START}Who\b{_STATEMENT}|\b[Ww]ho(?:so)?m?ever\b",
        "name the actor: a client, a writer, the caller",
        "Who has the answer gets a 304.",
        "A client with a current copy gets a 304.",
    ),
    Rule(
        "what as a subject",
        rf"{_START}What\b{_STATEMENT}",
        "name the thing: a noun is shorter than a clause",
        "What cannot become a row is stored as a reject.",
        "An event that cannot become a row is stored as a reject.",
    ),
    Rule(
        "nobody",
        r"\b(?:[Nn]obody|[Ss]omebody|[Ee]verybody)\b",
        "name the actor, or use the passive",
        "Nobody sees the object before it is complete.",
        "The object is invisible until it is complete.",
    ),
    Rule(
        "those who",
        r"\b(?:[Tt]hose|[Ee]veryone|[Nn]one) who\b",
        "name the actor",
        "Those who wait for it are told.",
        "Waiting callers get an error.",
    ),
    Rule(
        "of what",
        r"\b[Ww]hat of\b|\b(?:of|from|for|with|by|to|than|as) what\b",
        "name the thing or the part",
        "Return what of a table may not be read.",
        "Return the caller's restriction on a table.",
    ),
    Rule(
        "tell of",
        r"\b(?:[Tt]ells?|told|telling) of\b",
        "describe, list, report or show",
        "Tell of a branch.",
        "Describe a branch.",
    ),
    Rule(
        "is none",
        r"(?<!here )\b(?:is|are|was|were|be) none\b",
        "use a plain negation",
        "The table is none of the lake's.",
        "The table is not in the lake.",
    ),
    Rule(
        "is no",
        r"(?<!here )\b(?:is|are|was|were|be) no (?!longer|more|less|fewer|greater|other|\w+er\b)\w+",
        "use 'is not a', or say what it must be",
        "The event is no object.",
        "The event must be a JSON object.",
    ),
    Rule(
        "are many",
        r"(?<!here )\bare (?:so )?many\b",
        "put the adjective before its noun",
        "Merging takes longer where commits are many.",
        "Merging takes longer on busy tables.",
    ),
    Rule(
        "as … has it",
        r"\bas (?:[\w'`-]+ ){1,4}(?:has|have|had) (?:it|them)\b",
        "say which name, form or rule is meant",
        "A version as Delta has it.",
        "A version, numbered as in Delta.",
    ),
    Rule(
        "let go",
        r"\b(?:lets?|letting) (?:\w+ )?go\b",
        "release, close, delete or stop",
        "The lease is let go.",
        "The lease is released.",
    ),
    Rule(
        "so many",
        r"\bso (?:many|much|long|few)\b(?! (?:\w+ )?that\b)",
        "give the number, or say 'this many' or 'as long as'",
        "Wait for so many commits.",
        "Wait for this many commits.",
    ),
    Rule(
        "beside",
        r"\b[Bb]eside\b",
        "'next to' for a place, 'besides' for an addition",
        "The log lies beside the data.",
        "The log is next to the data.",
    ),
    Rule("at hand", r"\bat hand\b", "current, available", "The version at hand.", "The current version."),
    Rule("mend", r"\bmend(?:s|ed|ing)?\b", "repair or fix", "A run mends the log.", "A run repairs the log."),
    Rule("shall", r"\b[Ss]hall\b", "must, will or should", "It shall be read.", "It must be read."),
    Rule(
        "pass over",
        r"\bpassed over\b|\bpass(?:es)? over (?:it|them|others)\b",
        "skip",
        "Such files are passed over.",
        "Such files are skipped.",
    ),
    Rule(
        "is not there",
        r"\b(?:is|are|was|were|be) not there\b|\b(?:that|which|what) (?:is|are|was|were) there\b",
        "exist, or be missing",
        "The table is not there.",
        "The table does not exist.",
    ),
    Rule(
        "come of",
        r"\b(?:come|comes|came|becomes|become|became) of\b",
        "result from, happen to",
        "What came of it is logged.",
        "The result is logged.",
    ),
    Rule(
        "get round",
        r"\b(?:get|gets|got|getting) (?:a)?round\b",
        "bypass or avoid",
        "SQL does not get round them.",
        "No SQL statement can bypass them.",
    ),
    Rule(
        "hold against",
        r"\b(?:hold|holds|held|holding) (?:\w+ )?against\b",
        "compare with",
        "The sum is held against the log.",
        "The sum is compared with the log.",
    ),
    Rule(
        "archaic word",
        r"\b(?:[Tt]hereof|[Ww]hence|[Tt]herein|[Ww]herein|[Ww]hereof)\b",
        "use an everyday word",
        "A table and the files thereof.",
        "A table and its files.",
    ),
)

_PYTHON = re.compile(
    r'[a-zA-Z]{0,2}(?P<doc>"""(?:[^"\\]|\\.|"(?!""))*""")'
    r'|[a-zA-Z]{0,2}(?P<text>"(?:[^"\\\n]|\\.)*"|' + r"'(?:[^'\\\n]|\\.)*')"
    r"|(?P<comment>\#[^\n]*)",
    re.DOTALL,
)
_FENCE = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
_CODE = re.compile(r"`[^`\n]*`")
_MARKUP = re.compile(r"\]\([^)]*\)|^[ \t]*(?:[-*>]|\d+\.|\#+)[ \t]+|\*\*|[\[\]*]", re.MULTILINE)


def page(text: str) -> str:
    """Return the prose of a Markdown page: a paragraph, a list entry or a cell of a table on each line."""
    prose = _CODE.sub("`x`", _FENCE.sub("", text)).replace(" | ", "\n").replace("| ", "")
    return _MARKUP.sub("", prose)


def module(source: str) -> dict[str, str]:
    """Return the prose of a Python module: its "messages" (strings), and its "comments" with the docstrings."""
    found: dict[str, list[str]] = {"messages": [], "comments": []}
    last, end = "", 0
    for match in _PYTHON.finditer(source):
        kind = match.lastgroup or ""
        text = match[kind].strip('"') if kind == "doc" else match[kind][1:-1] if kind == "text" else match[kind][1:]
        prose = found["messages" if kind == "text" else "comments"]
        if kind == last != "doc" and source[end : match.start()].isspace():
            prose[-1] += text
        else:
            prose.append(text)
        last, end = kind, match.end()
    return {place: "\n".join(map(_flat, prose)) for place, prose in found.items()}


def _flat(text: str) -> str:
    paragraphs = _CODE.sub("`x`", text).split("\n\n")
    return "\n".join(" ".join(paragraph.split()) for paragraph in paragraphs)


def texts() -> Iterator[tuple[str, str, str]]:
    """Yield the place, the path and the prose of all that the rules hold for."""
    pages = ("*.md", "docs/*.md", "docs/guides/*.md", "functions/*/README.md", "events/*.md", "benchmarks/*.md")
    for place, patterns in (("documents", pages), ("decisions", ("docs/decisions/*.md",))):
        for path in (path for pattern in patterns for path in sorted(ROOT.glob(pattern))):
            yield place, str(path.relative_to(ROOT)), page(path.read_text(encoding="utf-8"))
    for folder in ("shared", "functions"):
        for path in sorted((ROOT / folder).rglob("*.py")):
            for place, prose in module(path.read_text(encoding="utf-8")).items():
                yield place, str(path.relative_to(ROOT)), prose


def found() -> dict[str, dict[str, list[str]]]:
    """Return the phrases found, by rule and place: each with its path and the words around it."""
    compiled = [(rule.name, re.compile(rule.pattern, re.MULTILINE)) for rule in RULES]
    hits: dict[str, dict[str, list[str]]] = {rule.name: defaultdict(list) for rule in RULES}
    for place, path, prose in texts():
        for name, pattern in compiled:
            for match in pattern.finditer(prose):
                around = prose[max(0, match.start() - 40) : match.end() + 40].replace("\n", " ")
                hits[name][place].append(f"{path}: …{around}…")
    return hits


def left() -> Counts:
    """Return the counts that are allowed."""
    counts: Counts = json.loads(LEFT.read_text(encoding="utf-8"))
    return counts


def counted(hits: dict[str, dict[str, list[str]]]) -> Counts:
    """Return the counts of phrases that were found."""
    return {name: {place: len(each) for place, each in places.items()} for name, places in hits.items() if places}


def lower() -> None:
    """Write the counts of today where they are lower than those allowed."""
    allowed = left() if LEFT.exists() else None
    counts: Counts = {}
    for name, places in counted(found()).items():
        most = places if allowed is None else allowed.get(name, {})
        if fewer := {place: min(count, most[place]) for place, count in sorted(places.items()) if place in most}:
            counts[name] = fewer
    lines = (f"  {json.dumps(name, ensure_ascii=False)}: {json.dumps(counts[name])}" for name in sorted(counts))
    LEFT.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")


if __name__ == "__main__":
    lower()
