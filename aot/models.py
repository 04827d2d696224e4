"""Models that share an object: their names, and the bundle that each is.

Enters: models as read, or lowered, and the bundle of all. Leaves: names, or the bundle with `models`.
Invariant: no two functions or macros of the header have one name; a single model's bundle is as if there were no others to think of.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from aot.errors import CompileError
from aot.graph import tflite
from aot.names import bundle_identifier, identifier, suggestion

if TYPE_CHECKING:
    from aot.bundle import Bundle, Entry
    from aot.driver import Lowered
    from aot.graph.ir import Model
    from aot.graph.operator import Operator


def read_files(paths: Sequence[str | Path], operators: Mapping[str, Operator], functions: Mapping[str, str]) -> tuple[Model, ...]:
    """The models in these files. functions: the firmware's C functions by custom code; some model has to use each."""
    if not paths:
        raise CompileError("no model is given", hint="name a .tflite file")
    alone = len(paths) == 1
    models = tuple(tflite.read_file(path, operators, functions, must_use=alone) for path in paths)
    used = {code for model in models for code in model.custom_codes}
    for name in functions:
        if name not in used:
            raise CompileError(f"no model has a custom operator '{name}'", hint=suggestion(name, sorted(used), "they have: "))
    return models


def names_of(models: Sequence[Model], wanted: str | None) -> tuple[str, tuple[str, ...]]:
    """The bundle's name, which is `wanted` or made of the models', and each model's. A single model has the bundle's.

    CompileError where two models would have the same name.
    """
    stems = tuple(identifier(Path(model.name).stem) for model in models)
    if len(models) == 1:
        name = bundle_identifier(wanted or Path(models[0].name).stem)
        return name, (name,)
    seen: set[str] = set()
    for stem in stems:
        if stem.lower() in seen:
            raise CompileError(f"two models would be called '{stem}' in one bundle", hint="their files need different names")
        seen.add(stem.lower())
    return bundle_identifier(wanted or "_".join(stems)), stems


def require_distinct(name: str, symbols: Mapping[str, Sequence[str]], loads: bool = False) -> None:
    """CompileError unless the bundle's name and what its models' functions begin with differ, also in capitals, in which macros have
    them. symbols: of each model's entries. loads: the bundle has a NAME_load."""
    if len(symbols) == 1:
        return
    owners = {stem.lower(): f"the bundle '{name}'" for stem in (name, *([f"{name}_load"] if loads else []))}
    for model, entries in symbols.items():
        for stem in (*(symbol.removesuffix("_run") for symbol in entries), f"{model}_init"):
            if (other := owners.get(stem.lower())) is not None:
                what = f"functions or macros of {other} and of the model '{model}' would both begin with '{stem}_'"
                raise CompileError(what, hint="--name gives the bundle another name; a model's is that of its file")
            owners[stem.lower()] = f"the model '{model}'"


def require_distinct_regions(symbols: Sequence[str], regions: Iterable[str]) -> None:
    """CompileError if a region of an entry would have the macros of another entry's. symbols: of the entries, and the bundle's name."""
    owners: dict[str, str] = {}
    for symbol in symbols:
        for region in regions:
            stem = f"{symbol.removesuffix('_run')}_{region}".lower()
            if owners.setdefault(stem, region) != region:
                what = (
                    f"the regions '{owners[stem]}' and '{region}' of two functions would have the same macros, {stem.upper()}_SIZE"
                )
                raise CompileError(what, hint="give one of them another name")


def with_models(bundle: Bundle, lowered: Sequence[Lowered], entries: Sequence[Entry], shares_workspace: bool) -> Bundle:
    """The bundle with what is each model's own: its entries (of `entries`, which are in order), its state, its hash."""
    rest = iter(entries)
    models: list[Bundle] = []
    for each in lowered:
        runs = tuple(next(rest) for _ in each.entries)
        init = next(rest) if each.state.nbytes else None
        models.append(replace(bundle, name=each.name, entries=runs, init=init, model_sha256=each.model.sha256))
    return models[0] if len(models) == 1 else replace(bundle, models=tuple(models), shares_workspace=shares_workspace)
