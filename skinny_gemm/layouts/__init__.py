"""Index arithmetic, the only source of every offset: plain functions of Python ints, NumPy arrays or DSL integers."""

WARP = 32  #: lanes of a warp
