"""Pages whose ``sh`` blocks take a cluster, followed to the letter: cli.md, kueue.md, kubernetes-ledger.md.

The cluster is as docs/guide/kubernetes.md leaves it: installed, with machines, a namespace rai with a budget, an
operator, and a run train. What stands for a name in a page (NAME, JOURNAL) is filled in.
"""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tenure.testing.kube import ControlPlane, Kwok, gpu_nodes, until
from tests.kube.anchor.test_guide import BLOCKS, OPERATOR, Reader
from tests.kube.operating import operating
from tests.tidy.repository import ROOT

WHERE = {"cli.md": "guide", "kueue.md": "migrate", "kubernetes-ledger.md": "operate"}


def blocks(page: str) -> list[str]:
    text = (ROOT / "docs" / WHERE[page] / page).read_text()
    return re.findall(r"^```sh\n(.*?)^```", text, re.MULTILINE | re.DOTALL)


@pytest.fixture(scope="module")
def journal(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("journal")


@pytest.fixture(scope="module")
def reader(programs: dict[str, Path], journal: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Reader]:
    folder = tmp_path_factory.mktemp("pages")
    with ControlPlane.started(folder / "plane", programs) as plane, Kwok.started(programs["kwok"], plane.admin, folder):
        plane.api.create_all(gpu_nodes(4))
        reader = Reader(plane, folder)
        before = BLOCKS[: BLOCKS.index(OPERATOR)]
        with_run = [block for block in BLOCKS if "kind: Run" in block]
        for block in [one for one in before if "taint" not in one and "config" not in one]:
            done = reader.run(block)
            assert done.returncode == 0, f"{block}\n{done.stderr}"
        with operating(plane.service_account("tenure-system", "tenure-operator"), journal):
            for block in with_run:
                done = reader.run(block)
                assert done.returncode == 0, f"{block}\n{done.stderr}"
            yield reader


@pytest.mark.parametrize("page", ["cli.md", "kueue.md"])
def test_the_blocks_of_a_page_work_as_written(page: str, reader: Reader) -> None:
    assert blocks(page)
    for block in blocks(page):
        done = reader.run(block)
        assert done.returncode == 0, f"{block}\n{done.stdout}{done.stderr}"


def test_the_books_are_read_and_restored_as_the_page_says(reader: Reader, journal: Path) -> None:
    """What it says of hashes is true of a real entry; nothing was lost, so nothing is restored."""
    name = reader.run("kubectl get ledgerentries -o jsonpath='{.items[0].metadata.name}'").stdout
    assert name
    told = ""
    for block in blocks("kubernetes-ledger.md"):
        filled = re.sub(r"\bJOURNAL\b", str(journal / "journal.db"), re.sub(r"\bNAME\b", name, block))
        done = reader.run(filled)
        assert done.returncode == 0, f"{filled}\n{done.stderr}"
        told += done.stdout
    assert "nothing was lost that" in told
    digest = re.search(r"^([0-9a-f]{64})  -$", told, re.MULTILINE)
    assert digest is not None
    assert told.count(digest[1]) == 2  # the hash of the body, and what the entry says it is


def test_a_run_is_explained_to_who_may_read(reader: Reader) -> None:
    until(lambda: "Running" in reader.run("kubectl runs list -n rai").stdout)
    assert "org:ai:rai" in reader.run("kubectl runs explain rai/train").stdout
