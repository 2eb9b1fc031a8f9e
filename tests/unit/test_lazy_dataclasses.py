"""Dataclasses whose `__init__` is written later behave as those of the standard library do."""

from __future__ import annotations

import copy
import dataclasses
import inspect
import pickle
import subprocess
import sys
from collections.abc import Callable
from dataclasses import FrozenInstanceError, asdict, astuple, field, fields, is_dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, Generic, TypeVar

import pytest

from alluvia import lazy_dataclasses

Maker = Callable[..., Any]
T = TypeVar("T")
ROOT = Path(__file__).parents[2]
both = pytest.mark.parametrize(
    "dataclass", [lazy_dataclasses.dataclass, dataclasses.dataclass], ids=["lazy", "standard"]
)


@lazy_dataclasses.dataclass(frozen=True, slots=True)
class Kept:
    """At module level, so that it can be pickled."""

    name: str
    sizes: dict[str, int] = field(default_factory=dict)


@lazy_dataclasses.dataclass(slots=True)
class Counter:
    """Can be changed."""

    count: int = 0


def made(dataclass: Maker) -> Any:
    @dataclass(frozen=True, slots=True)
    class Point(Generic[T]):
        """A point."""

        kinds: ClassVar[tuple[str, ...]] = ("flat",)
        x: int
        y: int = 2
        tags: list[str] = field(default_factory=list, compare=False)
        secret: str = field(default="", repr=False)

        @property
        def sum(self) -> int:
            return self.x + self.y

    return Point


@both
def test_arguments_defaults_and_what_is_wrong_with_them(dataclass: Maker) -> None:
    point = made(dataclass)
    one, other = point(1), point(1, 2, tags=["a"], secret="s")
    assert (one.x, one.y, one.tags, one.secret, one.sum, one.kinds) == (1, 2, [], "", 3, ("flat",))
    assert astuple(other) == (1, 2, ["a"], "s")
    assert one.tags is not point(1).tags
    assert asdict(point(3)) == {"x": 3, "y": 2, "tags": [], "secret": ""}
    for wrong, message in (((), "missing 1 required positional argument: 'x'"), ((1, 2, [], "", 5), "takes from 2 to")):
        with pytest.raises(TypeError, match=message):
            point(*wrong)
    with pytest.raises(TypeError, match="unexpected keyword argument 'z'"):
        point(1, z=3)


@both
def test_equality_hashes_and_reprs(dataclass: Maker) -> None:
    point, other = made(dataclass), made(dataclass)
    assert point(1) == point(1, tags=["not compared"])
    assert point(1) != point(2)
    assert point(1) != other(1)  # another class
    assert {point(1), point(1, 2)} == {point(1)}
    assert hash(point(1)) == hash((1, 2, ""))
    assert repr(point(1, secret="not shown")).endswith("Point(x=1, y=2, tags=[])")

    @dataclass(slots=True)
    class Box:
        content: Any = None

    box = Box()
    assert box == Box(None)
    with pytest.raises(TypeError, match="unhashable"):
        hash(box)
    box.content = box
    assert repr(box).endswith("Box(content=...)")


@both
def test_what_is_frozen_stays_and_what_is_not_changes(dataclass: Maker) -> None:
    one = made(dataclass)(1)
    with pytest.raises(FrozenInstanceError, match="cannot assign to field 'x'"):
        one.x = 5
    with pytest.raises(FrozenInstanceError, match="cannot delete field 'x'"):
        del one.x
    assert not hasattr(one, "__dict__")

    @dataclass(slots=True)
    class Box:
        content: int

    box: Any = Box(1)
    box.content = 2
    assert box == Box(2)
    with pytest.raises(AttributeError):
        box.other = 3


def test_a_subclass_of_what_is_frozen_has_attributes_of_its_own() -> None:
    """With slots, the standard library of Python 3.11 raises a TypeError about `super` for these."""
    point = made(lazy_dataclasses.dataclass)

    class Named(point):  # type: ignore[misc, valid-type]
        pass

    with pytest.raises(FrozenInstanceError):
        point(1).label = "no slot"
    named = Named(1)
    named.label = "free"
    assert named.label == "free"
    del named.label
    with pytest.raises(FrozenInstanceError):
        named.x = 2


@both
def test_methods_of_the_class_itself_win(dataclass: Maker) -> None:
    @dataclass(frozen=True, slots=True)
    class Word:
        text: str

        def __post_init__(self) -> None:
            object.__setattr__(self, "text", self.text.lower())

        def __eq__(self, other: object) -> bool:
            return True

        def __hash__(self) -> int:
            return 7

        def __repr__(self) -> str:
            return "a word"

    assert Word("A").text == "a"
    assert Word("a") == 5
    assert hash(Word("a")) == 7
    assert repr(Word("a")) == "a word"

    @dataclass(frozen=True, slots=True, eq=False)
    class Node:
        text: str

    one = Node("a")
    assert one != Node("a")
    assert {one: 1}[one] == 1


@both
def test_the_tools_for_dataclasses(dataclass: Maker) -> None:
    point = made(dataclass)
    assert is_dataclass(made(dataclass))
    assert [(each.name, each.type, each.compare, each.repr) for each in fields(point)] == [
        ("x", "int", True, True),
        ("y", "int", True, True),
        ("tags", "list[str]", False, True),
        ("secret", "str", True, False),
    ]
    assert replace(point(1), y=5) == point(1, 5)
    assert copy.deepcopy(point(1, tags=["a"])).tags == ["a"]
    match point(1):
        case point(x, y):
            assert (x, y) == (1, 2)
    signature = inspect.signature(point)
    assert list(signature.parameters) == ["x", "y", "tags", "secret"]
    assert signature.parameters["y"].default == 2
    assert signature.parameters["y"].annotation == "int"
    assert point.__doc__ == "A point."
    if sys.version_info >= (3, 13):
        assert copy.replace(point(1), y=5) == point(1, 5)


def test_pickles_are_the_same_before_and_after_the_first_instance() -> None:
    kept = Kept("a", {"b": 1})
    assert pickle.loads(pickle.dumps(kept)) == kept
    assert pickle.loads(pickle.dumps(Counter(3))) == Counter(3)
    code = "import pickle, sys; print(pickle.loads(sys.stdin.buffer.read()))"  # where the class has no instance yet
    done = subprocess.run(
        [sys.executable, "-c", code], input=pickle.dumps(_limits()), capture_output=True, check=True, cwd=ROOT
    )
    assert done.stdout.decode().strip() == repr(_limits())


def _limits() -> Any:
    from alluvia.query.limits import QueryLimits

    return QueryLimits(7)


def test_subclasses_that_are_made_first() -> None:
    base = made(lazy_dataclasses.dataclass)

    class Shifted(base):  # type: ignore[misc, valid-type]
        def __init__(self, x: int) -> None:
            super().__init__(x + 1)

    assert Shifted(1).x == 2
    assert base(1).x == 1
    assert Shifted(1).x == 2


@pytest.mark.parametrize("kind", ["InitVar[int]", "KW_ONLY"])
def test_fields_of_other_kinds_are_refused(kind: str) -> None:
    class Odd:
        pass

    Odd.__annotations__ = {"x": kind}
    with pytest.raises(TypeError, match=r"Odd.x: use dataclasses.dataclass"):
        lazy_dataclasses.dataclass(frozen=True, slots=True)(Odd)


def test_inherited_fields_are_refused() -> None:
    class Child(Kept):
        more: int

    with pytest.raises(TypeError, match="Child inherits fields"):
        lazy_dataclasses.dataclass(frozen=True, slots=True)(Child)


@both
def test_other_options_are_those_of_the_standard_library(dataclass: Maker) -> None:
    @dataclass(frozen=True, slots=True, order=True)
    class Version:
        number: int

    assert Version(1) < Version(2)
