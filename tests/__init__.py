"""The project's tests. All that they import, and all processes that they start, come after this."""

import os
import sys
from pathlib import Path

from autotune.core.blas import ONE_THREAD

# References are small products by the thousand, several at a time: BLAS' idle threads spin longer than these take.
os.environ.update({name: os.environ.get(name, number) for name, number in ONE_THREAD.items()})

# Where bytecode may not lie beside its source (in many containers), each of hundreds of processes would compile all
# that it imports, which takes longer than most of them do.
if os.environ.get("PYTHONDONTWRITEBYTECODE") and not os.environ.get("PYTHONPYCACHEPREFIX"):
    sys.pycache_prefix = str(Path(__file__).parents[1] / ".pytest_cache" / "bytecode")
    sys.dont_write_bytecode = False
    os.environ["PYTHONPYCACHEPREFIX"] = sys.pycache_prefix
    del os.environ["PYTHONDONTWRITEBYTECODE"]
