"""`python -m benchmarks.storm.process`: `rlvr_jax.main`, as one of several processes.

JAX only stores the compiled programs of process 0, which the others cannot use on CPUs.
Here each process stores its own, so that a run is not mostly compilation.
"""

import sys
import types

from jax._src import compiler  # JAX has no public switch for it

from rlvr_jax.main import main

if __name__ == "__main__":
    first = types.SimpleNamespace(process_id=0, client=None)
    compiler.distributed = types.SimpleNamespace(global_state=first)  # type: ignore[assignment]
    sys.exit(main(sys.argv[1:]))
