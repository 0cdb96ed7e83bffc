"""A real control plane for tests: etcd and kube-apiserver on loopback, with KWOK for the kubelets.

The programs come from outside (``make kube-assets``); here they are started, given certificates, and stopped.
Nothing of ``tenure.kube`` is used: what tests check through it is not checked with itself.
"""

from tenure.testing.kube.api import Answer, Api, Refused
from tenure.testing.kube.kwok import (
    AT,
    EXIT_CODE,
    GO,
    GONE,
    HOLD,
    REJECTED,
    RUNS_FOR,
    STUCK,
    Kwok,
    gpu_node,
    gpu_nodes,
)
from tenure.testing.kube.plane import ControlPlane
from tenure.testing.kube.process import NotStarted
from tenure.testing.kube.waiting import until

__all__ = [
    "AT",
    "EXIT_CODE",
    "GO",
    "GONE",
    "HOLD",
    "REJECTED",
    "RUNS_FOR",
    "STUCK",
    "Answer",
    "Api",
    "ControlPlane",
    "Kwok",
    "NotStarted",
    "Refused",
    "gpu_node",
    "gpu_nodes",
    "until",
]
