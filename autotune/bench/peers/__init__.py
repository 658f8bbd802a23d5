"""Those whom we are compared with, a file a library: a new one is a file and a line here."""

from autotune.bench.contender import Contender
from autotune.bench.peers.of_flash_attn import FlashAttn
from autotune.bench.peers.of_flash_attn_4 import FlashAttn4
from autotune.bench.peers.of_torch import backends
from autotune.bench.peers.of_xformers import XFormers
from autotune.core.errors import UsageError

PEERS: tuple[Contender, ...] = (*backends(), FlashAttn(), FlashAttn4(), XFormers())
"""In the order in which they are called and shown."""


def chosen_peers(names: str | None) -> tuple[Contender, ...]:
    """Those named, comma-separated, in their usual order; by default all.

    Raises:
        UsageError: there is no such peer.
    """
    if names is None:
        return PEERS
    wanted = [name.strip() for name in names.split(",")]
    for name in wanted:
        if name not in {peer.name for peer in PEERS}:
            raise UsageError(f"there is no peer {name!r}; there are {', '.join(peer.name for peer in PEERS)}")
    return tuple(peer for peer in PEERS if peer.name in wanted)
