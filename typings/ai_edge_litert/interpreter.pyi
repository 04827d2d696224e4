from enum import Enum
from typing import Any

import numpy as np
from numpy.typing import NDArray

class OpResolverType(Enum):
    BUILTIN_REF = 2

class Interpreter:
    def __init__(
        self,
        *,
        model_content: bytes,
        num_threads: int | None = None,
        experimental_op_resolver_type: OpResolverType = ...,
        experimental_default_delegate_latest_features: bool = False,
    ) -> None: ...
    def allocate_tensors(self) -> None: ...
    def invoke(self) -> None: ...
    def get_input_details(self) -> list[dict[str, Any]]: ...
    def get_output_details(self) -> list[dict[str, Any]]: ...
    def set_tensor(self, tensor_index: int, value: np.ndarray) -> None: ...
    def get_tensor(self, tensor_index: int) -> NDArray[Any]: ...
