"""What gives way, in words: of a forecast (``would``) and of a resolution (``did``), one sentence for each kind of cut.

>>> would(Cut(kind="Shrink", run="rai/train", owner="org:ai", gpus=16))
'shrink rai/train by 16'
>>> did(Cut(kind="DropSpare", run="rai/train", owner="org:ai", gpus=1))
'1 spare of rai/train was dropped'
"""

from __future__ import annotations

from collections.abc import Iterator

from tenure.facts import Cut, Forecast

_WOULD = {
    "Reclaim": "end {gpus} of {run}, which runs on spares",
    "Overstay": "end {run}, which overstays: {gpus}",
    "DropSpare": "drop {spares} of {run}",
    "Shrink": "shrink {run} by {count}",
    "Lottery": "lottery ends {run}: {gpus}",
}
_DID = {
    "Reclaim": "{gpus} of {run}, which ran on spares, gave way",
    "Overstay": "{run} had overstayed and was ended: {gpus}",
    "DropSpare": "{spares} of {run} {were} dropped",
    "Shrink": "{run} was shrunk by {count}",
    "Lottery": "{run} was drawn by lot and ended: {gpus}",
}


def would(cut: Cut) -> str:
    return _said(_WOULD, cut)


def did(cut: Cut) -> str:
    return _said(_DID, cut)


def remedies(forecast: Forecast) -> Iterator[tuple[Cut, str]]:
    """The remedies of a forecast with their sentences. Who would be drawn nobody knows, so a lottery is one of them."""
    drawn = [cut for cut in forecast.remedies if cut.kind == "Lottery"]
    yield from ((cut, would(cut)) for cut in forecast.remedies if cut.kind != "Lottery")
    if drawn:
        gpus = sum(cut.gpus for cut in drawn)
        of = f" of {forecast.pool}" if forecast.pool else ""
        yield Cut(kind="Lottery", run="", owner="", gpus=gpus), f"lottery frees {gpus}{of}"


def _said(table: dict[str, str], cut: Cut) -> str:
    one = cut.gpus == 1
    return table[cut.kind].format(
        run=cut.run, count=cut.gpus, gpus=f"{cut.gpus} GPU{'' if one else 's'}",
        spares=f"{cut.gpus} spare{'' if one else 's'}", were="was" if one else "were",
    )  # fmt: skip
