"""For all tests: as many threads as cores, and less garbage collection."""

import gc
import os

if "PYTEST_XDIST_WORKER" in os.environ:
    # There is a worker for each core already. With a thread more for each they fight over the cores, and small products
    # of PyTorch and NumPy take up to four times as long. Processes that a worker starts inherit this.
    os.environ.setdefault("OMP_NUM_THREADS", "1")


def pytest_collection_finish():
    """With PyTorch, the compiler and all tests loaded a tenth of the time would go into looking for garbage in them."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 10, 10)
