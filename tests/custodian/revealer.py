"""A process that reveals one value after another and says so, until it is killed: ``revealer.py FOLDER FIRST``."""

import sys
from pathlib import Path

from tenure.custodian import Custodian, Revealed, open_custodian
from tenure.draw import H


def reveal_all(folder: Path, first: int) -> None:
    keeper = open_custodian(folder)
    assert isinstance(keeper, Custodian), keeper
    for index in range(first, 10_000):
        answer = keeper.reveal(index, commit=H(index.to_bytes(4, "big")).hex())
        assert isinstance(answer, Revealed), answer
        print(index, answer.commit, flush=True)


if __name__ == "__main__":
    reveal_all(Path(sys.argv[1]), int(sys.argv[2]))
