"""Methods of papers that Sluice is measured against; docs/research/ has a page on each.

    >>> sluice.research.ClusterHead(np.eye(3, dtype=np.float32), clusters=3).clusters
    3
"""

from sluice._sluice import ClusterHead

__all__ = ["ClusterHead"]
