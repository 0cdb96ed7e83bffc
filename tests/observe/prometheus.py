"""A real Prometheus, started by a test with our rules, and asked as Grafana asks it."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.parse import urlencode
from urllib.request import urlopen

import yaml

from tenure.testing.kube import until
from tenure.testing.kube.process import Program, free_ports

Sample = tuple[dict[str, str], float]


class Prometheus:
    """One that scrapes its targets every second."""

    def __init__(self, port: int) -> None:
        self._address = f"http://127.0.0.1:{port}"

    @classmethod
    @contextmanager
    def started(cls, program: Path, folder: Path, *, targets: list[str], rules: Path) -> Iterator[Prometheus]:
        (port,) = free_ports(1)
        config = {
            "global": {"scrape_interval": "1s", "scrape_timeout": "1s", "evaluation_interval": "1s"},
            "rule_files": [str(rules)],
            "scrape_configs": [{"job_name": "tenure", "static_configs": [{"targets": targets}]}],
        }
        (folder / "prometheus.yaml").write_text(yaml.safe_dump(config))
        command = [
            str(program), f"--config.file={folder / 'prometheus.yaml'}", f"--storage.tsdb.path={folder / 'tsdb'}",
            f"--web.listen-address=127.0.0.1:{port}", "--log.level=warn",
        ]  # fmt: skip
        process = Program("prometheus", command, folder / "prometheus.log")
        process.start()
        try:
            found = cls(port)
            until(lambda: len(found.query("up == 1")) == len(targets))
            yield found
        finally:
            process.stop()

    def query(self, expr: str) -> list[Sample]:
        """What an expression is now; what is not a number is no answer."""
        found = self._get("query", query=expr).get("result", ())
        if found and isinstance(found[0], float):  # a scalar
            return [({}, float(found[1]))]
        samples = [(one["metric"], float(one["value"][1])) for one in found]
        return [(labels, value) for labels, value in samples if not math.isnan(value)]

    def rules(self) -> list[dict[str, Any]]:
        return [rule for group in self._get("rules").get("groups", ()) for rule in group["rules"]]

    def _get(self, path: str, **query: str) -> dict[str, Any]:
        try:
            with urlopen(f"{self._address}/api/v1/{path}?{urlencode(query)}", timeout=10) as answer:
                found: dict[str, Any] = json.load(answer)["data"]
                return found
        except HTTPError as error:
            if error.code == 400:
                raise AssertionError(f"{query}: {error.read().decode()}") from error
            return {}
        except OSError:  # not there yet
            return {}
