"""What all dashboards have: variables, links, annotations, and panels in rows on a grid."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from grafana_foundation_sdk.builders import dashboard as build
from grafana_foundation_sdk.models import dashboard as model

from dashboards.datasource import DATASOURCE
from dashboards.parts import Part
from dashboards.queries import HOST, SERVER

COLUMNS = 24
TAGS = ["kvexporter", "llama.cpp"]
SCHEMA_VERSION = 39
"""Of Grafana 10.4; later ones read it and bring it up to date themselves."""

VARIABLES_OF_LINKS = (
    "var-datasource=${datasource}&var-job=${__field.labels.job}&var-instance=${__field.labels.instance}"
    "&var-server=${__field.labels.server}&${__url_time_range}"
)


@dataclass(frozen=True, slots=True)
class Row:
    """Panels under a heading, from left to right and then below."""

    title: str
    parts: Sequence[Part]


class Marks(model.AnnotationQuery):
    """Marks on all panels. The library knows Prometheus' query only, and not how its results are to be read."""

    def __init__(self, name: str, color: str, expression: str, title: str, text: str, times: bool) -> None:
        super().__init__(name=name, datasource=DATASOURCE, enable=True, hide=False, icon_color=color, expr=expression)
        self.extra: dict[str, object] = {"titleFormat": title, "textFormat": text, "tagKeys": "", "step": "15s"}
        if times:
            # The value is itself the time of the mark, in milliseconds.
            self.extra["useValueForTime"] = True

    def to_json(self) -> dict[str, object]:
        return {**super().to_json(), **self.extra}


def page(uid: str, title: str, description: str, *rows: Row, one_server: bool) -> model.Dashboard:
    """Build a dashboard; with `one_server` of a server that is chosen, else of all."""
    head = (
        build.Dashboard(title)
        .uid(uid)
        .description(description)
        .tags(TAGS)
        .readonly()
        .tooltip(model.DashboardCursorSync.CROSSHAIR)
        .refresh("30s")
        .time("now-1h", "now")
        .timezone("browser")
        .variables([_datasource(), *_places(one_server), *([_server()] if one_server else [])])
        .link(
            build.DashboardLink("kvexporter")
            .type(model.DashboardLinkType.DASHBOARDS)
            .tags(TAGS[:1])
            .keep_time(True)
            .include_vars(True)
            .as_dropdown(False)
        )
    )
    result = head.build()
    result.schema_version = SCHEMA_VERSION
    result.version = 1
    result.annotations = model.AnnotationContainer(_marks(SERVER if one_server else HOST))
    result.panels = _place(rows)
    return result


def _place(rows: Sequence[Row]) -> list[model.Panel | model.RowPanel]:
    placed: list[model.Panel | model.RowPanel] = []
    x = y = line = 0
    for row in rows:
        y, x, line = y + line, 0, 0
        head = model.RowPanel(collapsed=False, title=row.title, grid_pos=model.GridPos(h=1, w=COLUMNS, x=0, y=y))
        head.id_val = len(placed) + 1
        placed.append(head)
        y += 1
        for part in row.parts:
            if x + part.width > COLUMNS:
                x, y, line = 0, y + line, 0
            part.panel.id_val = len(placed) + 1
            part.panel.grid_pos = model.GridPos(h=part.height, w=part.width, x=x, y=y)
            placed.append(part.panel)
            x += part.width
            line = max(line, part.height)
    return placed


# ---- variables -------------------------------------------------------------------------------------------------------


def _datasource() -> build.DatasourceVariable:
    return (
        build.DatasourceVariable("datasource").label("Data source").type("prometheus").multi(False).include_all(False)
    )


def _places(one_server: bool) -> list[build.QueryVariable]:
    job = _query_variable("job", "Job", "label_values(llama_up, job)").multi(True).include_all(True)
    instance = _query_variable("instance", "Instance", 'label_values(llama_up{job=~"$job"}, instance)').multi(True)
    # Servers of two hosts may have the same name, so a page of one server is of one host unless more are chosen.
    instance.include_all(not one_server)
    everything = model.VariableOption(selected=True, text=["All"], value=["$__all"])
    job.all_value(".+").current(everything)
    instance.all_value(".+")
    if not one_server:
        instance.current(everything)
    return [job, instance]


def _server() -> build.QueryVariable:
    return _query_variable("server", "Server", f"label_values(llama_up{{{HOST}}}, server)").multi(False)


def _query_variable(name: str, label: str, query: str) -> build.QueryVariable:
    return (
        build.QueryVariable(name)
        .label(label)
        .datasource(DATASOURCE)
        .query({"qryType": 1, "query": query, "refId": "PrometheusVariableQueryEditor-VariableQuery"})
        .refresh(model.VariableRefresh.ON_TIME_RANGE_CHANGED)
        .sort(model.VariableSort.ALPHABETICAL_CASE_INSENSITIVE_ASC)
    )


# ---- annotations -----------------------------------------------------------------------------------------------------


def _marks(chosen: str) -> list[model.AnnotationQuery]:
    built_in = model.AnnotationQuery(
        name="Annotations & Alerts",
        datasource=model.DataSourceRef(type_val="grafana", uid="-- Grafana --"),
        enable=True,
        hide=True,
        icon_color="rgba(0, 211, 255, 1)",
        type_val="dashboard",
        built_in=1,
    )
    return [
        built_in,
        Marks(
            "Requests died", "red", f"llama_last_incident_timestamp_seconds{{{chosen}}} * 1000",
            "Context size has been exceeded", "{{server}}: requests died for want of context", times=True,
        ),
        Marks(
            "Server started", "blue", f"llama_process_start_time_seconds{{{chosen}}} * 1000",
            "Server started", "{{server}}", times=True,
        ),
        Marks(
            "Alerts", "orange", f'ALERTS{{{chosen}, alertname=~"Llama.+|Kvexporter.+", alertstate="firing"}}',
            "{{alertname}}", "{{severity}}: {{server}}", times=False,
        ),
    ]  # fmt: skip
