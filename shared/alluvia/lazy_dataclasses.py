"""`dataclasses.dataclass` for classes with slots, in a fifteenth of its time: the first caller has `__init__` written.

The standard library writes the text of five to eight methods for each class and compiles them one by one, 0.6 ms for a
frozen class in Python 3.11. A process that starts defines two hundred such classes and makes instances of few. Here
methods are closures, except for `__init__`, which should be fast. The classes behave alike, also for `replace`,
`fields`, `asdict`, pickle and `match`: tests compare them. Type checkers see the original.

What this leaves out (inherited fields, `InitVar`, `KW_ONLY`, `init=False`) raises `TypeError`; classes with other
options than these are made by the standard library.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

__all__ = ["dataclass"]

if TYPE_CHECKING:
    from dataclasses import dataclass
else:
    import dataclasses
    import inspect
    from operator import attrgetter
    from reprlib import recursive_repr

    _NOT_COPIED = ("__dict__", "__weakref__")
    """What a class without slots has of its own."""
    _NOT_GIVEN = object()
    """Stands for an argument whose default a function makes."""

    def dataclass(cls=None, /, *, frozen=False, slots=False, eq=True, **others):
        """Make a class one of records, as `dataclasses.dataclass` does."""
        if not slots or others:
            return dataclasses.dataclass(cls, frozen=frozen, slots=slots, eq=eq, **others)
        if cls is None:
            return lambda cls: _with_slots(cls, frozen, eq)
        return _with_slots(cls, frozen, eq)

    def _with_slots(cls, frozen, eq):
        namespace = {name: value for name, value in cls.__dict__.items() if name not in _NOT_COPIED}
        fields = _fields(cls, namespace)
        names = tuple(fields)
        for name in names:
            namespace.pop(name, None)  # a default, in the place of the slot
        methods = {"__repr__": _repr(tuple(name for name in names if fields[name].repr))}
        if eq and "__eq__" not in namespace:
            values = _getter(tuple(name for name in names if fields[name].compare))
            methods |= {"__eq__": _eq(values), "__hash__": _hash(values) if frozen else None}
        if frozen:
            methods["__getstate__"] = dataclasses._dataclass_getstate  # noqa: SLF001
            methods["__setstate__"] = dataclasses._dataclass_setstate  # noqa: SLF001
        if hasattr(dataclasses, "_replace"):  # of `copy.replace`, since Python 3.13
            methods["__replace__"] = dataclasses._replace
        about = {"__slots__": names, "__match_args__": names, "__dataclass_fields__": fields}
        made = type(cls)(cls.__name__, cls.__bases__, methods | namespace | about)
        made.__qualname__ = cls.__qualname__
        made.__init__ = _first_init(made, frozen)
        made.__signature__ = _Signature()
        if frozen:
            made.__setattr__ = _guard(made, "assign to", made.__setattr__)
            made.__delattr__ = _guard(made, "delete", made.__delattr__)
        return made

    def _fields(cls, namespace):
        """Return the fields by name, as the standard library describes them."""
        if any(hasattr(base, "__dataclass_fields__") for base in cls.__bases__):
            raise TypeError(f"{cls.__name__} inherits fields: use dataclasses.dataclass")
        fields = {}
        for name, kind in cls.__annotations__.items():
            label = str(kind).removeprefix("typing.").removeprefix("dataclasses.")
            if label.startswith("ClassVar"):
                continue
            given = namespace.get(name, dataclasses.MISSING)
            field = given if isinstance(given, dataclasses.Field) else dataclasses.field(default=given)
            if not field.init or field.kw_only is True or label.startswith(("InitVar", "KW_ONLY")):
                raise TypeError(f"{cls.__name__}.{name}: use dataclasses.dataclass for fields of this kind")
            field.name, field.type, field.kw_only = name, kind, False
            field._field_type = dataclasses._FIELD  # noqa: SLF001
            fields[name] = field
        return fields

    def _first_init(cls, frozen):
        def init(self, *args, **kwargs):
            cls.__init__ = _written_init(cls, frozen)
            cls.__init__(self, *args, **kwargs)

        return init

    def _written_init(cls, frozen):
        """Return the `__init__` of a class; it sets the slots directly where the class is frozen."""
        known, defaults, parameters, lines = {"_NOT_GIVEN": _NOT_GIVEN}, [], ["self"], []
        fields = cls.__dataclass_fields__
        for name, field in fields.items():
            value = name
            parameters.append(name)
            if field.default is not dataclasses.MISSING:
                defaults.append(field.default)
            elif field.default_factory is not dataclasses.MISSING:
                defaults.append(_NOT_GIVEN)
                known[f"_make_{name}"] = field.default_factory
                value = f"_make_{name}() if {name} is _NOT_GIVEN else {name}"
            elif defaults:
                raise TypeError(f"non-default argument {name!r} follows default argument")
            known[f"_set_{name}"] = cls.__dict__[name].__set__
            lines.append(f"_set_{name}(self, {value})" if frozen else f"self.{name} = {value}")
        if hasattr(cls, "__post_init__"):
            lines.append("self.__post_init__()")
        body = "\n  ".join(lines or ["pass"])
        exec(f"def __init__({', '.join(parameters)}):\n  {body}", known)  # noqa: S102 - names of a class
        made = known["__init__"]
        made.__defaults__ = tuple(defaults)
        made.__qualname__, made.__module__ = f"{cls.__qualname__}.__init__", cls.__module__
        made.__annotations__ = {name: field.type for name, field in fields.items()} | {"return": "None"}
        return made

    class _Signature:
        """The signature of a class, as its `__init__` has it."""

        def __get__(self, instance, owner):
            signature = inspect.signature(_written_init(owner, frozen=False))
            return signature.replace(parameters=list(signature.parameters.values())[1:])

    def _getter(names):
        """Return what gives the values of some attributes, as a tuple."""
        if len(names) > 1:
            return attrgetter(*names)
        return lambda one: tuple(getattr(one, name) for name in names)

    def _eq(values):
        def equal(self, other):
            return values(self) == values(other) if other.__class__ is self.__class__ else NotImplemented

        return equal

    def _hash(values):
        return lambda self: hash(values(self))

    def _repr(names):
        @recursive_repr()
        def shown(self):
            return f"{self.__class__.__qualname__}({', '.join(f'{name}={getattr(self, name)!r}' for name in names)})"

        return shown

    def _guard(cls, what, inherited):
        """Return what refuses to change the fields of a frozen class."""

        def guard(self, name, *value):
            if type(self) is cls or name in cls.__dataclass_fields__:
                raise dataclasses.FrozenInstanceError(f"cannot {what} field {name!r}")
            inherited(self, name, *value)

        return guard
