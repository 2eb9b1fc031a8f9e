"""Pages, messages and comments keep clear of phrases that readers stumble over."""

from __future__ import annotations

import re

import pytest

from tests.docs.english import RULES, Rule, counted, found, left, module, page


def test_no_phrase_comes_back() -> None:
    hits, allowed = found(), left()
    rules = {rule.name: rule for rule in RULES}
    grown = [
        f"{name} ({rules[name].reason}; {rules[name].avoid!r}: {rules[name].write!r}), {place}:\n  " + "\n  ".join(each)
        for name, places in hits.items()
        for place, each in places.items()
        if len(each) > allowed.get(name, {}).get(place, 0)
    ]
    assert not grown, "\n".join(grown)
    assert counted(hits) == allowed, "Fewer phrases than before: run `python -m tests.docs.english`"


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
