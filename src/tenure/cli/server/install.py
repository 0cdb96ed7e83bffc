"""`tenure install`: what Tenure needs in a Kubernetes cluster, applied to it, shown, or compared with what is there."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import click

from tenure.cli.exits import Exit
from tenure.cli.output import Cell, Format, Table, columns, draw, show
from tenure.cli.session import output
from tenure.cli.terminal import hint, say
from tenure.cli.trouble import Trouble

if TYPE_CHECKING:
    from tenure.kube.client import Client
    from tenure.kube.guard import Finding
    from tenure.kube.install import Applied
    from tenure.kube.system import System

_STYLES = {"created": "good", "changed": "wait", "unchanged": "dim"}


@click.command("install", short_help="Install Tenure in a Kubernetes cluster.")
@click.option("--kube", is_flag=True, help="Into a Kubernetes cluster: the only place there is to install into.")
@click.option("--context", metavar="NAME", help="The context of the kubeconfig. Left out: the current one.")
@click.option(
    "--namespace", metavar="NAME", default="tenure-system", show_default=True, help="Where the operator is to live."
)
@click.option(
    "--gpu-resource", metavar="NAME", default="nvidia.com/gpu", show_default=True,
    help="The resource that counts GPUs: `gpuResource` of the policy.",
)  # fmt: skip
@click.option(
    "--webhook-url", metavar="URL", default="",
    help="Where the API server reaches the webhook. Left out: at its service, inside the cluster.",
)  # fmt: skip
@click.option(
    "--taint-nodes", is_flag=True,
    help="Only set the taint of managed nodes, on every node with GPUs that is there now.",
)  # fmt: skip
@click.option("--dry-run", is_flag=True, help="Have the API server try everything, and change nothing.")
@click.option("--check", is_flag=True, help="Only compare policies and nodes with what they should be.")
@output("table", "json", "yaml")
def command(
    kube: bool,
    context: str | None,
    namespace: str,
    gpu_resource: str,
    webhook_url: str,
    taint_nodes: bool,
    dry_run: bool,
    check: bool,
    output: Format,
) -> Exit:
    """Install Tenure in a Kubernetes cluster, or bring an installation up to date.

    Kinds, admission policies, roles, the operator's account, and the webhook's configuration are applied by the API
    server itself (server-side apply): calling it again changes nothing that is right. It returns when the kinds are
    served and the policies are in force. It takes the rights of a cluster administrator.

    With --taint-nodes every node with GPUs that is there now gets the taint rq.davidlangworthy.io/managed, which only
    Tenure's pods tolerate; DaemonSets that must run there (a device plugin) have to tolerate it too. Nothing else is
    changed. For nodes that come later call it again, or have their kubelets register with it.

    JSON and YAML: the objects themselves, for review or for a tool that applies them; nothing is changed.
    """
    if not kube:
        raise Trouble("it is not said where to", next_step="tenure install --kube")
    system = _system(namespace, gpu_resource, webhook_url)
    if check:
        return _checked(_in_cluster(context, lambda client: _inspect(client, system)))
    if output in ("json", "yaml"):
        _print(system, output)
        return Exit.OK
    if taint_nodes:
        return _tainted(_in_cluster(context, lambda client: _taint(client, system, dry_run)), dry_run)
    done, open_nodes = _in_cluster(context, lambda client: _install(client, system, dry_run))
    draw(_table(done))
    counts = {change: sum(each.change == change for each in done) for change in _STYLES}
    would = "nothing was changed; it would be " if dry_run else ""
    print(f"{would}{', '.join(f'{count} {change}' for change, count in counts.items())}")
    if open_nodes:
        say(open_nodes)
    hint(
        f"tenure install --kube{f' --context {context}' if context else ''}"
        if dry_run
        else "bind namespaces to owners: kubectl annotate namespace NAME rq.davidlangworthy.io/owner=org:team; "
        "let people in: kubectl create rolebinding tenants -n NAME --clusterrole tenure-tenant --group TEAM"
    )
    return Exit.OK


def _system(namespace: str, gpu_resource: str, webhook_url: str) -> System:
    from tenure.api.formats import DNS_LABEL, FORMATS
    from tenure.kube.system import System

    if not DNS_LABEL.fullmatch(namespace):
        raise Trouble(f"{namespace!r} is not a namespace's name", next_step="tenure install --kube --help")
    if not FORMATS["label-key"].accepts(gpu_resource):
        raise Trouble(f"{gpu_resource!r} is not a resource", next_step="write one such as nvidia.com/gpu")
    if webhook_url and not webhook_url.startswith("https://"):
        raise Trouble(f"{webhook_url!r} is not an https address", next_step="write one such as https://host:9443")
    return System(namespace=namespace, gpu_resource=gpu_resource, webhook_url=webhook_url)


def _print(system: System, output: Format) -> None:
    from tenure.kube.install import manifests

    listing = {"apiVersion": "v1", "kind": "List", "items": manifests(system)}
    show(output, tables=list, data=lambda: listing, names=list)


def _table(done: list[Applied]) -> Table:
    rows: list[list[Cell]] = [
        [
            each.kind,
            f"{each.namespace}/{each.name}" if each.namespace else each.name,
            (each.change, _STYLES[each.change]),
        ]
        for each in done
    ]
    return Table(columns("KIND", "NAME", "CHANGE"), rows)


def _checked(found: tuple[list[Finding], str]) -> Exit:
    findings, open_nodes = found
    if findings or open_nodes:
        step = "tenure install --kube" if findings else "tenure install --kube --taint-nodes"
        said = [*(each.sentence() for each in findings), *([open_nodes] if open_nodes else [])]
        raise Trouble(*said, next_step=step, exit=Exit.REFUSED)
    print("every admission policy is in place and as it was installed; every node with GPUs has its taint")
    return Exit.OK


def _tainted(done: list[Applied], dry_run: bool) -> Exit:
    if done:
        draw(_table(done))
    would = "nothing was changed; it would be " if dry_run and done else ""
    print(f"{would}{len(done)} tainted" if done else "every node with GPUs has the taint already")
    return Exit.OK


async def _taint(client: Client, system: System, dry_run: bool) -> list[Applied]:
    from tenure.kube.machines import taint

    return await taint(client, system.gpu_resource, dry_run=dry_run)


async def _install(client: Client, system: System, dry_run: bool) -> tuple[list[Applied], str]:
    """What was done, and which nodes are open to other pods."""
    from tenure.kube.install import NotInForce, install
    from tenure.kube.machines import open_nodes, told

    try:
        done = await install(client, system, dry_run=dry_run)
        return done, told(await open_nodes(client, system.gpu_resource))
    except NotInForce as error:
        step = "look at the API server's --disable-admission-plugins, then try again"
        raise Trouble(str(error), next_step=step, exit=Exit.REFUSED) from error


async def _inspect(client: Client, system: System) -> tuple[list[Finding], str]:
    from tenure.kube.guard import inspect
    from tenure.kube.machines import open_nodes, told

    return await inspect(client, system), told(await open_nodes(client, system.gpu_resource))


def _in_cluster(context: str | None, work: Any) -> Any:
    """Do something with the cluster that the kubeconfig names, and say what is wrong in two lines."""
    try:
        from tenure.kube.client import ApiError, Client
    except ModuleNotFoundError as error:
        step = "pip install '.[kube]' in a clone of Tenure"
        raise Trouble(f"the extra for Kubernetes is not installed ({error.name})", next_step=step) from error
    from tenure.kube.config import NoAccess, discover, from_kubeconfig

    async def go() -> Any:
        access = from_kubeconfig(context=context) if context else discover()
        async with Client(access) as client:
            return await work(client)

    try:
        return asyncio.run(go())
    except NoAccess as error:
        step = "export KUBECONFIG=FILE, or name a context of it with --context"
        raise Trouble(str(error), next_step=step, exit=Exit.NOT_FOUND) from error
    except ApiError as error:
        step = "it takes the rights of a cluster administrator" if error.code in (401, 403) else "try again"
        raise Trouble(f"the API server refused: {error}", next_step=step, exit=Exit.REFUSED) from error
