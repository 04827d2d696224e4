"""What back ends with kernels for quantised layers share: reading a layer, its requantisation, what is fused behind it.

Enters: a Program's instructions. Leaves: layers as numbers, proven forms of requantisation, implementations' lists of operands.
Invariant: nothing here knows a CPU's instructions but for the cost order of the requantisation's forms.
"""
