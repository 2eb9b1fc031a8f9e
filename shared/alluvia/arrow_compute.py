"""`pyarrow.compute` as `pc`, function by function: each is made when it is first used.

When that module is loaded, it writes 300 functions with their documentation, which takes as long as loading Arrow
itself. What calls them is in `pyarrow._compute`, where it takes its functions from; the few that it defines itself, and
whatever else is asked for, come from there. Type checkers see `pyarrow.compute`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

__all__ = ["pc"]

if TYPE_CHECKING:
    from pyarrow import compute as pc
else:
    _NAMES = {"and_": "and", "or_": "or"}
    """Names of functions that are words of Python."""
    _DEFINED = ("index", "random")
    """Names that pyarrow.compute gives to functions of its own, which do more than those of the registry."""

    class _Compute:
        def __getattr__(self, name):
            function = _OWN.get(name) or _registered(name)
            if function is None:
                import pyarrow.compute

                function = getattr(pyarrow.compute, name)
            setattr(self, name, function)
            return function

    def _registered(name):
        """Return what calls a function of Arrow's registry, as pyarrow.compute has it; None for other names."""
        if name in _DEFINED:
            return None
        try:
            from pyarrow import _compute

            function = _compute.function_registry().get_function(_NAMES.get(name, name))
            kind, arity, options_name = function.kind, function.arity, function._doc.options_class  # noqa: SLF001
            options_class = getattr(_compute, options_name) if options_name else None
        except (ImportError, AttributeError, KeyError):
            return None
        return None if kind == "hash_aggregate" else _calling(name, function, arity, options_class)

    def _calling(name, function, arity, options_class):
        def call(*args, memory_pool=None, options=None, **named):
            count = len(args) if arity is Ellipsis else arity
            if len(args) < count or (options_class is None and (len(args) > count or named)):
                raise TypeError(f"{name} takes {count} positional argument(s), but {len(args)} were given")
            if options_class is not None and (len(args) > count or named):
                options = options_class(*args[count:], **named)
            return function.call(args[:count], options, memory_pool)

        return call

    def _fill_null(values, fill_value):
        import pyarrow as pa

        if not isinstance(fill_value, pa.Scalar | pa.Array | pa.ChunkedArray):
            fill_value = pa.scalar(fill_value, values.type)
        elif values.type != fill_value.type:
            fill_value = pa.scalar(fill_value.as_py(), values.type)
        return pc.coalesce(values, fill_value)

    def _cast(values, target_type, *, safe=True):
        from pyarrow._compute import CastOptions, call_function

        options = CastOptions.safe(target_type) if safe else CastOptions.unsafe(target_type)
        return call_function("cast", [values], options)

    _OWN = {"cast": _cast, "fill_null": _fill_null}
    """What pyarrow.compute defines itself, and readers of tables need."""

    pc = _Compute()
