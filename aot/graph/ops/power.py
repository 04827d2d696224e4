"""POW: float32 and int32; ATAN2: float32. Broadcasting.

TFLite Micro has neither; the yardstick is LiteRT, whose float32 results come from C's maths library: ours are within POWER_ULP and
ANGLE_ULP of the exact ones. int32 powers wrap (LiteRT's are undefined where they overflow); a negative exponent, which LiteRT
refuses, is refused as a constant and gives 0 at run time.
"""

from __future__ import annotations

from aot.graph.floatangle import angle
from aot.graph.floatpower import power, whole_power
from aot.graph.ir import DType, Site
from aot.graph.ops import checks
from aot.graph.ops.binary import require_dtypes
from aot.graph.ops.elementwise import Expressed, Form, elementwise
from aot.graph.support import litert


def _power(site: Site) -> Form:
    require_dtypes(site, DType.FLOAT32, DType.INT32)
    if site.output.dtype is DType.FLOAT32:
        return Expressed(power)
    exponent = site.input(1)
    if exponent.data is not None and (exponent.data < 0).any():
        raise site.error(f"the int32 exponent {checks.describe(exponent)} is negative")
    return Expressed(whole_power)


def _angle(site: Site) -> Form:
    require_dtypes(site, DType.FLOAT32)
    return Expressed(angle)


OPERATORS = (
    elementwise("POW", _power).supports(
        litert("float32, int32"),
        notes="float32 within 2 ulp of the exact result; int32 wraps; a constant negative exponent of int32 is refused.",
    ),
    elementwise("ATAN2", _angle).supports(litert("float32"), notes="Within 3 ulp of the exact result."),
)
