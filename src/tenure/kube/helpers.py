"""Credentials from a helper program that a kubeconfig names (``exec``), as kubectl asks for them.

Only for people at a command line: it is their kubeconfig, and kubectl runs the same program. The operator never does.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec

SECONDS = 60.0


class HelperFailed(Exception):
    """The helper gave no credentials; the message says why."""


def credentials(asked: dict[str, Any], *, beside: Path, cluster: dict[str, Any]) -> dict[str, str]:
    """``token``, ``certificate`` and ``key`` as the helper of a kubeconfig's user prints them."""
    command = str(asked.get("command") or "")
    program = str(beside.parent / command) if os.sep in command else command
    spec: dict[str, Any] = {"interactive": sys.stdin is not None and sys.stdin.isatty()}
    if asked.get("provideClusterInfo"):
        spec["cluster"] = cluster
    told = {"apiVersion": asked.get("apiVersion"), "kind": "ExecCredential", "spec": spec}
    given = {str(one["name"]): str(one["value"]) for one in asked.get("env") or ()}
    environment = {**os.environ, **given, "KUBERNETES_EXEC_INFO": msgspec.json.encode(told).decode()}
    try:
        done = subprocess.run(
            [program, *map(str, asked.get("args") or ())],
            env=environment,
            stdout=subprocess.PIPE,
            check=False,
            timeout=SECONDS,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        hint = asked.get("installHint") or "check that it is installed and on the PATH"
        raise HelperFailed(f"the helper {program} could not be run ({error}); {hint}") from error
    if done.returncode:
        raise HelperFailed(f"the helper {program} ended with exit code {done.returncode}")
    try:
        status = msgspec.json.decode(done.stdout)["status"]
        fields = {"token": "token", "certificate": "clientCertificateData", "key": "clientKeyData"}
        return {name: str(status[key]) for name, key in fields.items() if status.get(key)}
    except (msgspec.MsgspecError, KeyError, TypeError, AttributeError) as error:
        raise HelperFailed(f"the helper {program} printed no ExecCredential") from error
