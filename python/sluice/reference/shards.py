"""A vocabulary that is split among shards gives the answer of the whole row: values, masses and
noise depend only on the global id of a token. The definition is therefore the whole row, put together.
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from .cut import Cut
from .row_status import Status


def whole_row(shards: Sequence[np.ndarray]) -> np.ndarray:
    return np.concatenate([np.asarray(shard) for shard in shards], axis=-1)


def shard_cut(cut: Cut, ties_before_upper: int, ties_before_lower: int) -> Cut:
    """The part of a row's Cut that falls into one shard, as is_kept reads it: of the ties at either
    boundary, those in the shards before are already counted. The count stays the whole row's."""
    if cut.status != Status.OK:
        return cut
    return replace(
        cut,
        ties_dropped=max(0, cut.ties_dropped - ties_before_upper),
        ties_kept=max(0, cut.ties_kept - ties_before_lower),
    )
