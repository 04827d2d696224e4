# pyright: basic
"""The options of a bundle in a form that can be kept beside it, and compiled with again.

Enters: Options; or what was recorded of some. Leaves: JSON without paths; Options. Invariant: `recall(record(options))` compiles to the same bytes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING, Field, asdict, fields, replace
from types import NoneType, UnionType
from typing import TYPE_CHECKING, Any, Literal, Union, get_args, get_origin, get_type_hints

from aot.errors import CompileError
from aot.target import Target, load_target, target_from, target_names

if TYPE_CHECKING:
    from aot.driver import Options


def record(options: Options) -> dict[str, Any]:
    """The options that are not as they are by default, but the bundle's name, which it has itself. A CPU of the user's own is written out."""
    found = {}
    for each in fields(options):
        value = getattr(options, each.name)
        if each.name != "name" and value != _default(each):
            found[each.name] = _target(value) if each.name == "target" else _plain(value)
    return {name: value for name, value in found.items() if value is not None}


def recall(recorded: object, name: str) -> Options:
    """The options that were recorded of a bundle of this name. CompileError if they are none of this version's."""
    from aot.driver import Options

    if not isinstance(recorded, dict):
        raise CompileError("no options are recorded", hint="the bundle is of another version of aot: make it again")
    kinds = get_type_hints(Options)
    found: dict[str, Any] = {}
    for key, value in recorded.items():
        if key == "target" and isinstance(value, dict):
            found[key] = target_from({**value}, "the recorded target")
        elif key not in kinds or not _is(value, kinds[key]) or (key == "target" and value not in target_names()):
            raise CompileError(
                f"the recorded option {key} = {value!r} is not one of this version's", hint="check with the version that made it"
            )
        else:
            found[key] = {each: tuple(shape) for each, shape in value.items()} if key == "shapes" else value
    return replace(Options(name=name), **found)


def _default(field: Field[Any]) -> object:
    return field.default_factory() if field.default_factory is not MISSING else field.default


def _target(target: str | Target) -> str | dict[str, Any] | None:
    """A CPU of the package's by name, any other as its file would say it; None for this machine."""
    if isinstance(target, str) and target in target_names():
        return target
    found = load_target(target) if isinstance(target, str) else target
    if found.is_host:
        return None
    own = asdict(replace(found, memory=dict(found.memory), run={name: dict(each) for name, each in found.run.items()}))
    own["has"] = sorted(found.has)
    return {each.name: own[each.name] for each in fields(found) if own[each.name] not in ("", [], {}, 0)}


def _plain(value: Any) -> Any:
    """JSON's kinds alone. The order of a mapping counts (regions: the fastest first), and is kept."""
    if isinstance(value, Mapping):
        return {key: _plain(each) for key, each in value.items()}
    return list(value) if isinstance(value, tuple) else value


def _is(value: object, kind: Any) -> bool:
    """Whether JSON's value is of this type of an option."""
    origin, inner = get_origin(kind), get_args(kind)
    if origin in (Union, UnionType):
        return any(_is(value, each) for each in inner)
    if origin is Literal:
        return value in inner
    if origin is tuple:
        return isinstance(value, list) and all(_is(each, inner[0]) for each in value)
    if origin is not None and issubclass(origin, Mapping):
        return isinstance(value, dict) and all(_is(each, inner[1]) for each in value.values())
    if kind is None or kind is NoneType:
        return value is None
    return isinstance(value, kind) and not (kind is int and isinstance(value, bool))
