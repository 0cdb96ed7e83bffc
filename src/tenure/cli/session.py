"""What every verb of `kubectl runs` has in common: which fleet, which namespace, which output, and how to name the
next command.

``@verb`` makes a click command of a function and gives it a ``Session``. The options that choose a fleet or a
namespace may stand before the verb or after it; what stands closer to the verb counts.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from time import time_ns
from typing import TYPE_CHECKING, Any

import click
from msgspec import Struct
from msgspec.structs import replace

from tenure.cli.exits import Exit
from tenure.cli.output import FORMATS
from tenure.cli.times import Ago
from tenure.cli.trouble import Trouble
from tenure.units import Instant

if TYPE_CHECKING:
    from tenure.cli.port import Fleet

LOCAL_VARIABLE, NAMESPACE_VARIABLE, ANCHOR_VARIABLE = "TENURE_LOCAL", "TENURE_NAMESPACE", "TENURE_ANCHOR"
ARCHIVE_VARIABLE = "TENURE_ARCHIVE"
DEFAULT_NAMESPACE = "default"
Function = Callable[..., Any]
_CHOOSING = ("local", "anchor", "kubeconfig", "context", "archive")
"""Options that choose a fleet: an embedded one, or a cluster."""
_SHARED = ("output", "all_namespaces", "namespace", *_CHOOSING)
"""Options of most verbs, in the order in which help lists them: after the verb's own."""


class Session(Struct, frozen=True, kw_only=True):
    """The choices of one call."""

    program: str = "kubectl runs"
    local: Path | None = None
    anchor: Path | None = None
    kubeconfig: Path | None = None
    context: str | None = None
    archive: Path | None = None
    flags: tuple[str, ...] = ()
    """The flags that chose the fleet, to be repeated in the next command; an environment variable needs none."""
    namespace: str | None = None
    all_namespaces: bool = False

    @property
    def place(self) -> str:
        """The namespace that names are looked up in: in a cluster, what the kubeconfig's context says counts too."""
        if self.namespace or self.local is not None:
            return self.namespace or DEFAULT_NAMESPACE
        with kubernetes():
            from tenure.cli.reach import access_to

        return access_to(self.kubeconfig, self.context).namespace

    @property
    def scope(self) -> str | None:
        """The namespace to list; None for all."""
        return None if self.all_namespaces else self.place

    def fleet(self, *, write: bool = False, brief: bool = False) -> Fleet:
        """Open the fleet that was chosen: an embedded one if one is named, else the cluster of the kubeconfig.

        ``brief``: runs will be listed, and nothing else is asked; a cluster may then answer without its ledger.
        """
        if self.local is None:
            with kubernetes():
                from tenure.cli.cluster import ClusterFleet

            return ClusterFleet.open(
                kubeconfig=self.kubeconfig, context=self.context, archive=self.archive, brief=brief
            )
        from tenure.cli.local import LocalFleet

        return LocalFleet.open(self.local, write=write, anchor=self.anchor)

    def present(self) -> Instant:
        """The present instant of the fleet that was chosen: that of a kept scenario is where it ended."""
        if self.local is None:
            return time_ns() // 1000
        with self.fleet() as fleet:
            return fleet.view().now

    def command(self, *words: str) -> str:
        """A command to copy: the program, the flags that chose this fleet, and the words."""
        return " ".join([self.program, *map(shlex.quote, (*self.flags, *words))])

    def about(self, verb: str, namespace: str, name: str) -> str:
        """A command about one run."""
        return self.command(verb, name if namespace == self.place else f"{namespace}/{name}")

    def key(self, text: str) -> tuple[str, str]:
        """Namespace and name of a RUN as it was typed: ``name``, or ``namespace/name``."""
        namespace, slash, name = text.rpartition("/")
        if not slash:
            return self.place, name
        if not namespace or not name or "/" in namespace:
            raise Trouble(f"{text!r} is not the name of a run", next_step="write NAME or NAMESPACE/NAME")
        if self.namespace is not None and namespace != self.namespace:
            problem = f"{text} is in namespace {namespace}, but -n says {self.namespace}"
            raise Trouble(problem, next_step="leave one of them out")
        return namespace, name

    def taking(self, given: dict[str, Any]) -> Session:
        """This session with the options of a verb; they are taken out of ``given``."""
        changes: dict[str, Any] = {}
        for name in (*_CHOOSING, "namespace", "all_namespaces"):
            value = given.pop(name, None)
            if value and (_is_typed(name) or not getattr(self, name)):
                changes[name] = value
        typed = [name for name in _CHOOSING if name in changes and _is_typed(name)]
        flags = (*self.flags, *(word for name in typed for word in (f"--{name}", str(changes[name]))))
        return replace(self, **changes, flags=flags)._one_home()

    def check_namespace(self) -> None:
        """Nothing can be in a namespace that no namespace can be called."""
        if self.namespace is None:
            return
        from tenure.api.formats import DNS_LABEL

        if not DNS_LABEL.fullmatch(self.namespace):
            from tenure.api.validate import NAMESPACE_FIX

            raise Trouble(f"{self.namespace[:80]!r} is not a namespace's name", next_step=NAMESPACE_FIX)

    def _one_home(self) -> Session:
        """What is typed counts more than what the environment says; both homes cannot be meant."""
        if "--kubeconfig" not in self.flags and "--context" not in self.flags:
            return self
        if "--local" in self.flags:
            problem = "--local names an embedded fleet, --kubeconfig and --context name a cluster"
            raise Trouble(problem, next_step="leave one of them out")
        return replace(self, local=None)


def _is_typed(name: str) -> bool:
    """Whether an option was typed here. What the environment says counts less, wherever it is looked up."""
    source = click.get_current_context().get_parameter_source(name)
    return source is click.core.ParameterSource.COMMANDLINE


@contextmanager
def kubernetes() -> Iterator[None]:
    """Import what only clusters need: an extra of the installation."""
    try:
        yield
    except ModuleNotFoundError as error:
        step = (
            f"name an embedded fleet with --local FILE or {LOCAL_VARIABLE}; for a cluster, "
            "pip install '.[kube]' in a clone of Tenure"
        )
        problem = f"no embedded fleet was chosen, and the extra for Kubernetes is not installed ({error.name})"
        raise Trouble(problem, next_step=step) from error


def missing(session: Session, what: str, *, like: str = "") -> Trouble:
    """There is no such thing."""
    step = f"did you mean {like}? Otherwise: " if like else ""
    return Trouble(f"{what} does not exist", next_step=f"{step}{session.command('list', '-A')}", exit=Exit.NOT_FOUND)


# --- options --------------------------------------------------------------------------------------------------------


def verb(
    name: str, short: str, *, namespaced: bool = False, listing: bool = False, **settings: Any
) -> Callable[[Function], click.Command]:
    """A command of `kubectl runs`. The function's docstring is its help; it gets the session as first argument."""

    def decorate(function: Function) -> click.Command:
        def call(**given: Any) -> Any:
            session = current().taking(given)
            if namespaced or listing:
                session.check_namespace()
            return function(session, **_dated(given, session))

        call.__doc__ = function.__doc__
        call.__click_params__ = list(getattr(function, "__click_params__", ()))  # type: ignore[attr-defined]  # click's own
        if listing:
            all_namespaces(call)
        if namespaced or listing:
            namespace(call)
        fleet_options(call)
        command = click.command(name, cls=click.Command, short_help=short, **settings)(call)
        command.params.sort(key=lambda param: _SHARED.index(param.name) if param.name in _SHARED else -1)
        return command

    return decorate


def _dated(given: dict[str, Any], session: Session) -> dict[str, Any]:
    """Options, with instants in the place of how long ago they were."""
    ago = {name: value for name, value in given.items() if isinstance(value, Ago)}
    now = session.present() if ago else 0
    return {**given, **{name: now - value.length for name, value in ago.items()}}


def current() -> Session:
    """The session of the running command."""
    return click.get_current_context().find_object(Session) or Session()


def fleet_options(function: Function) -> Function:
    """The options that choose a fleet: an embedded one, or a cluster."""
    archive = click.option(
        "--archive", type=click.Path(path_type=Path, file_okay=False), envvar=ARCHIVE_VARIABLE, metavar="FOLDER",
        help="Where a cluster's old entries were moved to, if the copy on this computer lacks them.",
    )  # fmt: skip
    context = click.option("--context", metavar="NAME", help="The cluster to use: a context of the kubeconfig.")
    kubeconfig = click.option(
        "--kubeconfig", type=click.Path(path_type=Path), metavar="FILE",
        help="The kubeconfig, if not that of KUBECONFIG.",
    )  # fmt: skip
    return embedded_options(kubeconfig(context(archive(function))))


def embedded_options(function: Function) -> Function:
    """``--local`` and ``--anchor``."""
    anchor = click.option(
        "--anchor", type=click.Path(path_type=Path), envvar=ANCHOR_VARIABLE, metavar="FILE",
        help="Where the ledger's anchor is, if not beside it.",
    )  # fmt: skip
    local = click.option(
        "--local", type=click.Path(path_type=Path), envvar=LOCAL_VARIABLE, metavar="FILE",
        help="The embedded fleet to use.", show_envvar=True,
    )  # fmt: skip
    return local(anchor(function))


def namespace(function: Function) -> Function:
    return click.option(
        "-n", "--namespace", envvar=NAMESPACE_VARIABLE, metavar="NAME", show_envvar=True,
        help=f'The namespace. Left out: that of the kubeconfig\'s context, or "{DEFAULT_NAMESPACE}".',
    )(function)  # fmt: skip


def all_namespaces(function: Function) -> Function:
    return click.option("-A", "--all-namespaces", is_flag=True, help="All namespaces.")(function)


def output(*formats: str) -> Callable[[Function], Function]:
    """``-o``, with the formats that a verb knows."""
    return click.option(
        "-o", "--output", type=click.Choice(formats or FORMATS), default="table", show_default=True,
        help="Form of the answer.",
    )  # fmt: skip
