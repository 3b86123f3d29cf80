"""The configuration's `alerting` section: who is told of the pool's alerts, straight from here."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated

from kvexporter.config_kinds import FILE, LABELS, NAME, RECEIVER_URL, TEXT, URL, duration, host_and_port
from kvexporter.config_reading import Key, ListOf, Place, Section
from kvexporter.config_tls import TLS, TlsConfig

MAX_RECEIVERS = 10
_TIMEOUT = duration(0.5, 60)


@dataclass(frozen=True, slots=True)
class BasicAuthConfig:
    """A user's name and password for the receiver."""

    username: Annotated[str, Key(TEXT, "The user's name.")] = ""
    password_file: Annotated[
        Path | None, Key(FILE, "File with the password: the first line that is not empty. Read anew when it changes.")
    ] = None


def _check_basic_auth(place: Place, auth: BasicAuthConfig) -> BasicAuthConfig:
    if not auth.username or auth.password_file is None:
        raise place.refuse("expected username and password_file, found only one of them or none")
    if ":" in auth.username:
        raise place.refuse("expected a username without a colon: HTTP's basic authentication cannot tell it")
    return auth


_BASIC_AUTH = Section(BasicAuthConfig, _check_basic_auth)


@dataclass(frozen=True, slots=True)
class AlertmanagerConfig:
    """One Alertmanager. Those of one cluster are all listed: each is told everything, as Prometheus does it."""

    url: Annotated[
        str | None, Key(URL, "Where it answers, without `/api/v2`; with its base path if it has one.", "must be given")
    ] = None
    name: Annotated[str, Key(NAME, "Its name in metrics and in the log. Must be unique.", "the URL's host:port")] = ""
    basic_auth: Annotated[
        BasicAuthConfig | None, Key(_BASIC_AUTH, "User and password, if it demands them.", "none")
    ] = None
    tls: Annotated[TlsConfig | None, Key(TLS, "TLS options of an https URL.", "the system's certificates")] = None
    timeout: Annotated[
        float, Key(_TIMEOUT, "Longest that one of its answers is waited for. Nobody else waits with it.", "`5s`")
    ] = 5.0


def _check_alertmanager(place: Place, manager: AlertmanagerConfig) -> AlertmanagerConfig:
    if manager.url is None:
        raise place.refuse("expected url, found none")
    if "/api/" in f"{manager.url}/":
        raise place.refuse("expected the Alertmanager's own address, found one with /api/ in it: leave out /api and on")
    _check_tls_of(place, manager.tls, manager.url)
    return replace(manager, name=manager.name or host_and_port(manager.url))


@dataclass(frozen=True, slots=True)
class WebhookConfig:
    """A receiver of JSON, for those without an Alertmanager. What it gets: docs/alerting.md."""

    url: Annotated[str | None, Key(RECEIVER_URL, "Where the JSON is posted to.", "must be given, or `url_file`")] = None
    url_file: Annotated[
        Path | None,
        Key(FILE, "File with the address, where that is a secret by itself: the first line that is not empty.", "none"),
    ] = None
    name: Annotated[str, Key(NAME, "Its name in metrics and in the log. Must be unique.", "the URL's host:port")] = ""
    basic_auth: Annotated[
        BasicAuthConfig | None, Key(_BASIC_AUTH, "User and password, if it demands them.", "none")
    ] = None
    tls: Annotated[TlsConfig | None, Key(TLS, "TLS options of an https URL.", "the system's certificates")] = None
    timeout: Annotated[
        float, Key(_TIMEOUT, "Longest that one of its answers is waited for. Nobody else waits with it.", "`5s`")
    ] = 5.0


def _check_webhook(place: Place, webhook: WebhookConfig) -> WebhookConfig:
    if (webhook.url is None) == (webhook.url_file is None):
        raise place.refuse(f"expected url or url_file, found {'none of them' if webhook.url is None else 'both'}")
    if webhook.url is None:
        if not webhook.name:
            raise place.refuse("expected a name beside url_file, found none: what is in the file is never shown")
        return webhook
    _check_tls_of(place, webhook.tls, webhook.url)
    return replace(webhook, name=webhook.name or host_and_port(webhook.url))


def _check_tls_of(place: Place, tls: TlsConfig | None, url: str) -> None:
    if tls is not None and not url.startswith("https://"):
        place.note("expected an https:// url beside tls, found an http:// one")


@dataclass(frozen=True, slots=True)
class AlertingConfig:
    """The pool's alerts, posted by kvexporter itself within 2 s, besides what Prometheus' rules do."""

    labels: Annotated[
        dict[str, str],
        Key(
            LABELS,
            "Labels put on every alert. With `job` and `instance` as Prometheus has them for this exporter (and its "
            "external labels, if it has any) these alerts and those of the rules are the same, and Alertmanager "
            "merges them.",
            "none",
        ),
    ] = field(default_factory=dict, hash=False)
    alertmanagers: Annotated[
        tuple[AlertmanagerConfig, ...],
        Key(
            ListOf(Section(AlertmanagerConfig, _check_alertmanager), limit=MAX_RECEIVERS),
            "The Alertmanagers to tell, all of them.",
            "none",
        ),
    ] = ()
    webhooks: Annotated[
        tuple[WebhookConfig, ...],
        Key(
            ListOf(Section(WebhookConfig, _check_webhook), limit=MAX_RECEIVERS),
            "Other receivers, which get JSON.",
            "none",
        ),
    ] = ()


def _check_alerting(place: Place, alerting: AlertingConfig) -> AlertingConfig:
    if not alerting.alertmanagers and not alerting.webhooks:
        raise place.refuse("expected alertmanagers or webhooks, found neither: nobody would be told")
    seen: set[str] = set()
    names = [each.name for each in alerting.alertmanagers] + [each.name for each in alerting.webhooks]
    for name in names:
        if name in seen:
            place.note(f"expected a name of its own for each receiver, found {name!r} twice")
        seen.add(name)
    missing = [name for name in ("job", "instance") if name not in alerting.labels]
    if alerting.alertmanagers and missing:
        place.warn(
            f"no {' and no '.join(missing)} in labels: where Prometheus' rules are used too, Alertmanager does not "
            "take these alerts and theirs for the same"
        )
    return alerting


ALERTING = Section(AlertingConfig, _check_alerting)
