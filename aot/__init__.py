"""aot: a TFLite model in, a relocatable object file and a C header out.

    import aot
    bundle = aot.compile("model.tflite", "cortex-m4")
    aot.write(bundle, "out")
"""

from aot.artefacts import write
from aot.bundle import Bundle
from aot.driver import Options, compile
from aot.errors import CompileError, InternalError
from aot.version import VERSION as __version__

__all__ = ["Bundle", "CompileError", "InternalError", "Options", "__version__", "compile", "write"]
