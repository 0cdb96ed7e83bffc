"""Dashboards for Grafana, from ``tenure.observe.dashboards``: what ``tools/generate.py`` writes to deploy/dashboards.

The builders of Grafana's own foundation SDK know what Grafana reads; here is only what ours look like: one installation
at a time (``job``), from whichever Prometheus the reader has, linked to one another.
"""

from __future__ import annotations

from typing import Any

from grafana_foundation_sdk.builders import bargauge, common, dashboard, prometheus, stat, table, timeseries
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models import common as looks
from grafana_foundation_sdk.models import dashboard as parts
from grafana_foundation_sdk.models import prometheus as queries

from tenure.observe.dashboards import Dashboard, Panel, Query, scoped

SOURCE = parts.DataSourceRef(type_val="prometheus", uid="${datasource}")
HEIGHTS = {"stat": 5, "name": 5, "timeseries": 8, "stacked": 8, "bars": 8, "table": 8}
TAG = "tenure"


def written(one: Dashboard) -> str:
    """A dashboard as the JSON that Grafana imports."""
    made = (
        dashboard.Dashboard(one.title)
        .uid(f"tenure-{one.name}")
        .description(one.about)
        .tags([TAG])
        .refresh("1m")
        .time("now-24h", "now")
        .timezone("browser")
        .tooltip(parts.DashboardCursorSync.CROSSHAIR)
        .links([dashboard.DashboardLink("Tenure").type("dashboards").tags([TAG]).as_dropdown(True).keep_time(True)])
        .with_variable(dashboard.DatasourceVariable("datasource").label("Prometheus").type("prometheus"))
        .with_variable(_jobs())
    )
    for number, panel in enumerate(one.panels, 1):
        made.with_panel(_panel(panel, number))
    return str(JSONEncoder(sort_keys=True, indent=2).encode(made.build())) + "\n"


def _jobs() -> Any:
    return (
        dashboard.QueryVariable("job")
        .label("Installation")
        .query("label_values(controller_ready, job)")
        .datasource(SOURCE)
        .refresh(parts.VariableRefresh.ON_TIME_RANGE_CHANGED)
        .sort(parts.VariableSort.ALPHABETICAL_ASC)
        .multi(True)
        .include_all(True)
        .all_value(".+")
    )


def _panel(one: Panel, number: int) -> Any:
    made = _KINDS[one.kind]()
    made.id(number).title(one.title).datasource(SOURCE).unit(one.unit).span(one.width).height(HEIGHTS[one.kind])
    if one.about:
        made.description(one.about)
    for letter, query in zip("ABCDEFGH", one.queries, strict=False):
        made.with_target(_target(query, letter, one))
    if one.kind == "table":
        made.with_transformation(parts.DataTransformerConfig(id_val="merge", options={}))
        hidden = {"Time": True}
        names = {f"Value #{letter}": query.legend for letter, query in zip("ABCDEFGH", one.queries, strict=False)}
        options = {"excludeByName": hidden, "indexByName": {}, "renameByName": names if len(names) > 1 else {}}
        made.with_transformation(parts.DataTransformerConfig(id_val="organize", options=options))
    return made


def _target(query: Query, letter: str, panel: Panel) -> Any:
    made = prometheus.Dataquery().ref_id(letter).expr(scoped(query.expr)).datasource(SOURCE)
    if panel.kind == "table":
        return made.instant().format(queries.PromQueryFormat.TABLE)
    if panel.kind in ("stat", "name", "bars"):
        made.instant()
    return made.legend_format(query.legend or panel.title)


def _series() -> Any:
    legend = common.VizLegendOptions().display_mode(looks.LegendDisplayMode.LIST)
    legend = legend.placement(looks.LegendPlacement.BOTTOM).show_legend(True)
    return timeseries.Panel().legend(legend).min(0)


def _stacked() -> Any:
    return _series().fill_opacity(30).stacking(common.StackingConfig().mode(looks.StackingMode.NORMAL))


def _bars() -> Any:
    return bargauge.Panel().orientation(looks.VizOrientation.HORIZONTAL).reduce_options(_last()).min(0)


def _stat() -> Any:
    return stat.Panel().graph_mode(looks.BigValueGraphMode.NONE).reduce_options(_last())


def _name() -> Any:
    return _stat().text_mode(looks.BigValueTextMode.NAME)


def _table() -> Any:
    return table.Panel().show_header(True)


def _last() -> Any:
    return common.ReduceDataOptions().calcs(["lastNotNull"])


_KINDS = {
    "timeseries": _series, "stacked": _stacked, "stat": _stat, "name": _name, "bars": _bars, "table": _table,
}  # fmt: skip
