class TensorType:
    INT32: int
