"""Which cluster: from --kubeconfig and --context, or as every tool of Kubernetes finds it. Nothing is connected yet."""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path
from typing import Any

from tenure.cli.exits import Exit
from tenure.cli.trouble import Trouble
from tenure.kube.config import Access, NoAccess, from_kubeconfig, in_a_pod, in_cluster


def access_to(kubeconfig: Path | None, context: str | None) -> Access:
    """How to reach the cluster that was chosen, or what to say if none can be."""
    return _found(kubeconfig, context, os.environ.get("KUBECONFIG", ""))


@cache
def _found(kubeconfig: Path | None, context: str | None, _environment: str) -> Access:
    try:
        inside = kubeconfig is None and context is None and in_a_pod()
        return in_cluster() if inside else from_kubeconfig(kubeconfig, context=context, helper=_helped)
    except NoAccess as error:
        chosen = kubeconfig is not None or context is not None
        problem = str(error).rstrip(".") if chosen else f"no fleet was chosen, and no cluster: {str(error).rstrip('.')}"
        raise Trouble(problem, next_step="name an embedded fleet with --local FILE or TENURE_LOCAL (`tenure init FILE "
                      "--fleet fleet.yaml` creates one), or a cluster with --kubeconfig FILE",
                      exit=Exit.NOT_FOUND if chosen else Exit.INVALID) from error  # fmt: skip


def _helped(asked: dict[str, Any], file: Path, cluster: dict[str, Any]) -> dict[str, str]:
    """Have the helper program that the user's own kubeconfig names print credentials, as kubectl does."""
    from tenure.kube.helpers import HelperFailed, credentials

    try:
        return credentials(asked, beside=file, cluster=cluster)
    except HelperFailed as error:
        step = f"see whether kubectl can log in with {file}"
        raise Trouble(str(error), next_step=step, exit=Exit.REFUSED) from error
