"""JSON Schema of project files, for editors that complete and check them.

Enters: the keys of a bundle. Leaves: a dictionary that is JSON. Invariant: what a key takes and says comes from the command line.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from aot.project.keys import Key
from aot.project.reading import NAME

FILE = "bundle.schema.json"
_OWN = ("name", "output")
"""Keys that can't be defaults."""
_TEXT = {"type": "string", "minLength": 1}
_DEFAULTS = {"name": "the bundle's key", "output": "build/ and the bundle's key"}
"""What differs from the command line's defaults."""


def schema_of(keys: Mapping[str, Key]) -> dict[str, Any]:
    """The schema of a file whose bundles have these keys, and models."""
    models = {"description": "The .tflite files, from the project file on.", **_some(_TEXT)}
    properties = {"models": models, **{name: _property(key) for name, key in keys.items()}}
    shared = {name: each for name, each in properties.items() if name not in _OWN}
    bundles = {
        "description": "The bundles by name.",
        "type": "object",
        "minProperties": 1,
        "propertyNames": {"pattern": f"^{NAME}$"},
        "additionalProperties": {"$ref": "#/$defs/bundle"},
    }
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Bundles that aot build makes",
        "type": "object",
        "required": ["bundles"],
        "additionalProperties": False,
        "properties": {
            "defaults": {"description": "What every bundle has that says nothing else.", **_mapping(shared)},
            "bundles": bundles,
        },
        "$defs": {"bundle": _mapping(properties)},
    }


def summary_of(key: Key) -> str:
    """The option's help, with the defaults of a project."""
    if key.name not in _DEFAULTS:
        return key.summary
    return re.sub(r"\(default: [^)]*\)", f"(default: {_DEFAULTS[key.name]})", key.summary)


def _mapping(properties: Mapping[str, Any]) -> dict[str, Any]:
    return {"type": ["object", "null"], "additionalProperties": False, "properties": dict(properties)}


def _property(key: Key) -> dict[str, Any]:
    described = {"description": summary_of(key)}
    if key.switch:
        return {**described, "type": ["boolean", "null"]}
    one = key.value_schema()
    if key.pairs:
        value = {
            "anyOf": [{"type": ["string", "integer"]}, {"type": "array", "items": {"type": ["string", "integer"]}, "minItems": 1}]
        }
        return {**described, "anyOf": [*_some(one)["anyOf"], {"type": "object", "additionalProperties": value}, {"type": "null"}]}
    if key.many:
        return {**described, "anyOf": [*_some(one)["anyOf"], {"type": "null"}]}
    return {**described, "anyOf": [one, {"type": "null"}]}


def _some(one: Mapping[str, Any]) -> dict[str, Any]:
    """One value, or a list of them."""
    return {"anyOf": [dict(one), {"type": "array", "items": dict(one)}]}


def text_of(schema: Mapping[str, Any]) -> str:
    """A schema as a file."""
    return json.dumps(schema, indent=2, ensure_ascii=False) + "\n"
