"""A certificate that somebody else makes: served as it is, renewed without a restart, never swapped for a bad one."""

import asyncio
import shutil
import ssl
import subprocess
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from tenure.kube.provided import CERTIFICATE, KEY, Provided, Unusable, keep_read
from tenure.kube.webhook import Webhook
from tenure.testing.kube.certs import Authority
from tenure.testing.kube.waiting import PATIENCE

HOST = "127.0.0.1"


def put(folder: Path, authority: Authority) -> None:
    """As a mounted Secret has it."""
    folder.mkdir(exist_ok=True)
    authority.server((HOST,)).write(folder, "tls")


def is_trusted(authority: Authority, port: int) -> Awaitable[bool]:
    async def ask() -> bool:
        context = ssl.create_default_context(cadata=authority.certificate.decode())
        connector = aiohttp.TCPConnector(ssl=context, force_close=True)
        async with aiohttp.ClientSession(connector=connector) as client:
            try:
                async with client.post(f"https://{HOST}:{port}/validate", data=b"{") as answer:
                    return answer.status == 415  # it answers, and wants JSON
            except aiohttp.ClientConnectorCertificateError:
                return False

    return ask()


def served(folder: Path, work: Callable[[Provided, int], Awaitable[Any]]) -> Any:
    async def go() -> Any:
        provided = Provided(folder)
        webhook = Webhook(provided)
        await webhook.start(HOST, 0)
        try:
            return await work(provided, webhook.port)
        finally:
            await webhook.stop()

    return asyncio.run(go())


def test_it_is_served_and_renewed_without_a_restart(tmp_path: Path) -> None:
    old, new = Authority(), Authority()
    put(tmp_path / "tls", old)

    async def work(provided: Provided, port: int) -> None:
        assert await is_trusted(old, port)
        assert not await is_trusted(new, port)
        keeping = asyncio.create_task(keep_read(provided, every=0.01))
        put(tmp_path / "tls", new)
        async with asyncio.timeout(PATIENCE):
            while not await is_trusted(new, port):
                await asyncio.sleep(0.01)
        keeping.cancel()
        assert not await is_trusted(old, port)

    served(tmp_path / "tls", work)


@pytest.mark.parametrize("fault", ["no key", "half a certificate", "the key of another", "gone"])
def test_a_bad_pair_leaves_the_good_one_in_use(tmp_path: Path, fault: str, caplog: pytest.LogCaptureFixture) -> None:
    authority, folder = Authority(), tmp_path / "tls"
    put(folder, authority)

    async def work(provided: Provided, port: int) -> None:
        if fault == "no key":
            (folder / KEY).unlink()
        elif fault == "half a certificate":
            (folder / CERTIFICATE).write_bytes((folder / CERTIFICATE).read_bytes()[:200])
        elif fault == "the key of another":
            put(tmp_path / "other", Authority())
            shutil.copy(tmp_path / "other" / KEY, folder / KEY)
        else:
            shutil.rmtree(folder)
        keeping = asyncio.create_task(keep_read(provided, every=0.01))
        async with asyncio.timeout(PATIENCE):
            while not caplog.records:
                await asyncio.sleep(0.01)
        assert await is_trusted(authority, port)
        await asyncio.sleep(0.05)
        keeping.cancel()
        assert len(caplog.records) == 1, "said once"
        put(folder, authority)
        assert provided.look()

    served(folder, work)


def test_without_a_certificate_there_is_nothing_to_begin_with(tmp_path: Path) -> None:
    with pytest.raises(Unusable, match="holds no certificate to serve with"):
        Provided(tmp_path)


def test_the_command_knows_it() -> None:
    program = "from tenure.cli.main import tenure; import sys; sys.exit(tenure())"
    done = subprocess.run(
        [sys.executable, "-c", program, "operator", "--help"], capture_output=True, text=True, check=True
    )
    assert "--webhook-certificate FOLDER" in done.stdout
