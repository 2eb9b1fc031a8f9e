"""Pages, messages and comments keep clear of phrases that readers stumble over."""

from __future__ import annotations

import re
from collections import defaultdict

import pytest

from tests.docs.english import RULES, Rule, module, page, texts

PLACES = ("documents", "decisions", "messages", "comments")
LEFT: dict[str, dict[str, int]] = {
    "who as a subject": {"documents": 1, "messages": 5, "comments": 70},
    "what as a subject": {"documents": 4, "messages": 18, "comments": 410},
    "nobody": {"messages": 4, "comments": 78},
    "those who": {"messages": 2, "comments": 11},
    "of what": {"documents": 7, "messages": 6, "comments": 252},
    "tell of": {"documents": 1, "messages": 7, "comments": 36},
    "is none": {"messages": 1, "comments": 23},
    "is no": {"messages": 1, "comments": 20},
    "are many": {"comments": 1},
    "as … has it": {"messages": 1, "comments": 104},
    "let go": {"comments": 4},
    "so many": {"messages": 9, "comments": 86},
    "beside": {"comments": 1},
    "mend": {"messages": 1, "comments": 1},
    "pass over": {"comments": 2},
    "is not there": {"documents": 1, "messages": 6, "comments": 58},
    "come of": {"messages": 7, "comments": 67},
}
"""How often each place still has a phrase. A count may only fall, and is then lowered here."""


def test_no_phrase_comes_back() -> None:
    found = _found()
    grown = [
        f"{rule.name} ({rule.reason}; {rule.avoid!r}: {rule.write!r}), {place}:\n  " + "\n  ".join(hits)
        for rule in RULES
        for place in PLACES
        if len(hits := found[rule.name, place]) > LEFT.get(rule.name, {}).get(place, 0)
    ]
    assert not grown, "\n".join(grown)


def _found() -> dict[tuple[str, str], list[str]]:
    compiled = [(rule.name, re.compile(rule.pattern, re.MULTILINE)) for rule in RULES]
    found: dict[tuple[str, str], list[str]] = defaultdict(list)
    for place, path, prose in texts():
        for name, pattern in compiled:
            for match in pattern.finditer(prose):
                around = prose[max(0, match.start() - 40) : match.end() + 40].replace("\n", " ")
                found[name, place].append(f"{path}: …{around}…")
    return found


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)
def test_a_rule_finds_its_phrase_and_accepts_what_to_write(rule: Rule) -> None:
    assert re.search(rule.pattern, rule.avoid, re.MULTILINE)
    assert not any(re.search(each.pattern, rule.write, re.MULTILINE) for each in RULES)


def test_questions_titles_and_code_are_not_findings() -> None:
    text = page(
        "# What it costs\n\nWho may read? `is none`\n\n```sh\nWhoever.\n```\n- [What is it?](x)\n| Who | What |\n"
    )
    assert not any(re.search(rule.pattern, text, re.MULTILINE) for rule in RULES)


def test_prose_of_a_module() -> None:
    source = '''"""Doc
string.

More."""
x = call(
    f"one {y['a']} "  # first
    "two"
    "three",
    "four",  # second
    # third
)
'''
    assert module(source) == {
        "messages": "one {y['a']} \ntwothree\nfour".replace(" \n", "\n"),
        "comments": "Doc string.\nMore.\nfirst\nsecond third",
    }
