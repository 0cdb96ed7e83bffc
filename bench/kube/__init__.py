"""Promises about a cluster, measured on a real API server: etcd, kube-apiserver with the admission policies, KWOK.

What Tenure writes is compared with a bare client that writes the same to the same server: the best that anybody could
do who decides nothing and keeps no books. Both run on the same machine, in turns.
"""

from __future__ import annotations

from bench.result import Row
from tools.kube_assets import Unobtainable, assets


def left_out(bench: str) -> list[Row]:
    """Why nothing is measured, if the programs of a control plane cannot be had here; else nothing."""
    try:
        assets()
    except Unobtainable as error:
        return [Row(bench=bench, what=f"not measured: {error}", measured=0, unit="")]
    return []
