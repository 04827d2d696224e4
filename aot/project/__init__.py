"""Projects: several bundles that one file names (`bundle.yaml`), made at once, and only where something changed.

Enters: a file, and the options of `aot bundle`, which are its keys. Leaves: bundles in their folders, each with a record beside it.
Invariant: a key of the file is an option of the command line: none is listed twice.
"""

from aot.project.building import Failed, Made, Outcome, Product, build
from aot.project.keys import Key, keys_of
from aot.project.reading import Project, read
from aot.project.schema import schema_of

__all__ = ["Failed", "Key", "Made", "Outcome", "Product", "Project", "build", "keys_of", "read", "schema_of"]
