"""What an API server, its policies or our webhook say no with, told as the embedded fleet tells it.

Our webhook speaks the same sentences as the embedded fleet: they are shown as they are. A schema's and a policy's are
put into the same form: which object, which field, what is wrong. Whoever lacks a right is told which role has it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from tenure.api.errors import FieldError, escape
from tenure.cli.exits import Exit
from tenure.cli.trouble import Trouble

if TYPE_CHECKING:
    from tenure.kube.errors import ApiError
    from tenure.kube.refusals import StoreRefused

_LINE_MAX = 600
_WEBHOOK = re.compile(r'admission webhook "[^"]*" denied the request: ')
_POLICY = re.compile(r"ValidatingAdmissionPolicy '([^']*)' with binding '[^']*' denied request: ")
_RIGHT = re.compile(r'User "([^"]*)" cannot (\S+) resource "([^"]*)".*?(?: in the namespace "([^"]*)"|$)')
READER = "tenure-auditor"
_ROLES = {"runs": "tenure-tenant", "budgets": "tenure-budget-owner", "namespaces": "tenure-administrator"}


def field_errors(name: str, error: ApiError) -> Iterator[FieldError]:
    """Every single thing that was wrong with an object; raises ``Trouble`` if it was something else than the object."""
    text = error.message
    if found := _WEBHOOK.search(text):
        yield from (_from_sentence(name, line) for line in text[found.end() :].splitlines() if line.strip())
    elif found := _POLICY.search(text):
        said = text[found.end() :].rstrip(".")
        yield _error(name, "", said, f"the cluster's admission policy {found[1]} says so")
    elif error.code == 422 and error.causes:
        yield from (_error(name, field, message, "mend it") for field, message in error.causes)
    elif error.code in (400, 422):
        yield _error(name, "", text, "mend it")
    else:
        raise trouble(error, doing=f"{name} was not taken")


def _from_sentence(name: str, line: str) -> FieldError:
    rest = line.removeprefix(f"{name}: ")
    problem, _, fix = rest.rpartition("; ")
    return _error(name, "", problem or rest, fix if problem else "mend it")


def _error(name: str, path: str, problem: str, fix: str) -> FieldError:
    shown = path if path not in ("<nil>", "") else ""
    return FieldError(
        object=name, path=shown, problem=escape(problem, limit=_LINE_MAX), fix=escape(fix, limit=_LINE_MAX)
    )


def trouble(error: ApiError, *, doing: str = "") -> Trouble:
    """An answer that has nothing to do with what was written."""
    before = f"{doing}: " if doing else ""
    if error.code == 401:
        return Trouble(f"{before}the API server does not know you: {error.message}",
                       next_step="log in again, or choose another user with --context", exit=Exit.REFUSED)  # fmt: skip
    if error.code == 403:
        return Trouble(f"{before}{_forbidden(error)}", next_step=_whom_to_ask(error), exit=Exit.REFUSED)
    if error.not_found:
        return Trouble(f"{before}{error.message}", next_step="check the name and the namespace", exit=Exit.NOT_FOUND)
    if error.code == 0:
        return Trouble(f"{before}the API server cannot be reached: {error.message}",
                       next_step="check that it answers (kubectl cluster-info), or choose another with --context",
                       exit=Exit.REFUSED)  # fmt: skip
    doubt = "; whether it was stored is not known" if error.in_doubt else ""
    return Trouble(f"{before}the API server refused: {error}{doubt}", next_step="try again", exit=Exit.REFUSED)


def _forbidden(error: ApiError) -> str:
    if found := _RIGHT.search(error.message):
        where = f" in namespace {found[4]}" if found[4] else ""
        return f"{found[1]} may not {found[2]} {found[3]}{where}"
    return f"the API server forbids it: {error.message}"


def _whom_to_ask(error: ApiError) -> str:
    found = _RIGHT.search(error.message)
    role = _ROLES.get(found[3], READER) if found else READER
    if found and role == "tenure-tenant" and found[4]:
        where, user = found[4], found[1]
        return f"ask an administrator: kubectl create rolebinding NAME -n {where} --clusterrole={role} --user={user}"
    user = found[1] if found else "YOU"
    return f"ask an administrator: kubectl create clusterrolebinding NAME --clusterrole={role} --user={user}"


def unreadable(error: ApiError) -> Trouble:
    """The ledger may not be read: what that means, and who can change it."""
    found = _RIGHT.search(error.message)
    who = found[1] if found else "you"
    return Trouble(
        f"{who} may not read the ledger of this cluster, and this answer is in nothing else",
        next_step="ask an administrator: kubectl create clusterrolebinding NAME "
        f"--clusterrole={READER} --user={found[1] if found else 'YOU'}; "
        "submit, list, shrink, grow and cancel work without it",
        exit=Exit.REFUSED,
    )


def from_store(refused: StoreRefused, *, folder: object) -> Trouble:
    """The copy of the ledger cannot be brought up to date."""
    from tenure.kube.refusals import Code

    steps = {
        Code.ArchiveNeeded: "once, name the operator's --archive folder or a copy of it: --archive FOLDER "
        "(TENURE_ARCHIVE); ask who keeps the cluster for it. submit, list, shrink, grow and cancel work without it",
        Code.Unreachable: "check that the API server answers (kubectl cluster-info), then try again",
        Code.NotAllowed: f"ask an administrator for ClusterRole {READER}",
    }
    witness = (Code.Behind, Code.Forked, Code.NoHead, Code.OtherFleet)
    step = steps.get(refused.code, refused.next_step)
    if refused.code in witness:
        step = f"tell who keeps the cluster first; to believe the API server all the same, remove {folder}"
    return Trouble(f"{refused.code}: {refused.sentence}", next_step=step, exit=Exit.REFUSED)
