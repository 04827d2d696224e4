"""Writes a bundle as files: NAME.o (or NAME.c, NAME_weights.c), NAME.h, NAME.json, CMakeLists.txt (and NAME.weights.bin).

Enters: a Bundle and a folder. Leaves: the paths written. Invariant: the same bundle gives the same bytes.
"""

from aot.artefacts.contents import describe_with_files, files
from aot.artefacts.description import describe, describe_memory
from aot.artefacts.writing import write, write_files

__all__ = ["describe", "describe_memory", "describe_with_files", "files", "write", "write_files"]
