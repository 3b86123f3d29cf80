"""`GET /props`, `GET /health` and `GET /models` as typed values."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal, get_args

import msgspec

from kvexporter.llama.errors import parse_error, unexpected
from kvexporter.llama.json_fields import UNREADABLE, flag, number, text

__all__ = ["ModelStatus", "Props", "RouterModel", "parse_error", "parse_health", "parse_models", "parse_props"]

ModelStatus = Literal["unloaded", "downloading", "loading", "loaded", "sleeping", "failed"]
MOST_MODELS = 4096
_LONGEST_NAME = 512


@dataclass(frozen=True, slots=True)
class Props:
    """What `/props` tells of the server; None where a build does not tell it. Never the template or any text."""

    total_slots: int | None
    slot_context: int | None
    """`default_generation_settings.n_ctx`."""
    model: str | None
    """Alias if there is one, else the file's name without its folder."""
    build: str | None
    sleeping: bool | None
    endpoint_slots: bool | None
    endpoint_metrics: bool | None
    model_path: str | None = None
    """The model's file as the server knows it."""
    router: bool = False
    """The answer is a router's own: it has no slots and no model."""


@dataclass(frozen=True, slots=True)
class RouterModel:
    """One model of `GET /models`."""

    id: str
    status: ModelStatus | None
    """None on a server of its own, which tells none, and for a word that is not known."""
    failed: bool
    """The last run ended with an error. Also set for models that were never loaded or stopped on purpose."""
    context: int | None = None
    """`meta.n_ctx`: tokens; None while not loaded, and on older builds."""
    training_context: int | None = None
    """`meta.n_ctx_train`: tokens; None while not loaded."""


class _GenerationSettings(msgspec.Struct):
    n_ctx: msgspec.Raw = msgspec.Raw()
    model: msgspec.Raw = msgspec.Raw()


class _Props(msgspec.Struct):
    default_generation_settings: msgspec.Raw = msgspec.Raw()
    total_slots: msgspec.Raw = msgspec.Raw()
    model_alias: msgspec.Raw = msgspec.Raw()
    model_path: msgspec.Raw = msgspec.Raw()
    build_info: msgspec.Raw = msgspec.Raw()
    is_sleeping: msgspec.Raw = msgspec.Raw()
    endpoint_slots: msgspec.Raw = msgspec.Raw()
    endpoint_metrics: msgspec.Raw = msgspec.Raw()
    role: msgspec.Raw = msgspec.Raw()


class _Health(msgspec.Struct):
    sleeping: msgspec.Raw = msgspec.Raw()
    is_sleeping: msgspec.Raw = msgspec.Raw()


class _Status(msgspec.Struct):
    value: msgspec.Raw = msgspec.Raw()
    failed: msgspec.Raw = msgspec.Raw()


class _Meta(msgspec.Struct):
    n_ctx: msgspec.Raw = msgspec.Raw()
    n_ctx_train: msgspec.Raw = msgspec.Raw()


class _Model(msgspec.Struct):
    id: msgspec.Raw = msgspec.Raw()
    status: msgspec.Raw = msgspec.Raw()
    meta: msgspec.Raw = msgspec.Raw()


class _Models(msgspec.Struct):
    data: list[_Model]


_props_decoder = msgspec.json.Decoder(_Props)
_settings_decoder = msgspec.json.Decoder(_GenerationSettings)
_health_decoder = msgspec.json.Decoder(_Health)
_models_decoder = msgspec.json.Decoder(_Models)
_status_decoder = msgspec.json.Decoder(_Status)
_meta_decoder = msgspec.json.Decoder(_Meta)


def parse_props(body: bytes) -> Props:
    """What one body of `/props` tells. Raises MalformedBody for what is not an answer of it."""
    try:
        props = _props_decoder.decode(body)
    except UNREADABLE:
        raise unexpected(body, "server properties") from None
    known = (props.default_generation_settings, props.total_slots, props.model_path, props.build_info)
    if not any(known):
        raise unexpected(body, "server properties")
    try:
        settings = _settings_decoder.decode(props.default_generation_settings)
    except UNREADABLE:
        settings = _GenerationSettings()
    router = text(props.role, limit=16) == "router"
    model = _alias(props) or _file_name(props.model_path) or _file_name(settings.model)
    return Props(
        total_slots=number(props.total_slots) or None,
        slot_context=number(settings.n_ctx) or None,
        # A router names itself where a server names its model.
        model=None if router else model,
        build=_build(props.build_info),
        sleeping=flag(props.is_sleeping),
        endpoint_slots=flag(props.endpoint_slots),
        endpoint_metrics=flag(props.endpoint_metrics),
        model_path=None if router else text(props.model_path, limit=4096),
        router=router,
    )


def parse_health(body: bytes) -> bool | None:
    """Whether `/health` says that the model is asleep; None where it does not tell, as upstream's own."""
    try:
        health = _health_decoder.decode(body)
    except UNREADABLE:
        return None
    sleeping = flag(health.sleeping)
    return flag(health.is_sleeping) if sleeping is None else sleeping


def parse_models(body: bytes) -> tuple[RouterModel, ...]:
    """The models of one body of `/models` or `/v1/models`, of a router or of a server of its own.

    Models without a usable id are left out. Raises MalformedBody for what is not a list of models.
    """
    try:
        models = _models_decoder.decode(body).data
    except UNREADABLE:
        raise unexpected(body, "a list of models") from None
    found: list[RouterModel] = []
    for model in models[:MOST_MODELS]:
        name = text(model.id, limit=_LONGEST_NAME)
        if name is None:
            continue
        status, failed = _model_status(model.status)
        context, training = _model_contexts(model.meta)
        found.append(RouterModel(name, status, failed, context, training))
    return tuple(found)


def _model_status(raw: msgspec.Raw) -> tuple[ModelStatus | None, bool]:
    try:
        status = _status_decoder.decode(raw)
    except UNREADABLE:
        return None, False
    word = text(status.value, limit=32)
    known = next((value for value in get_args(ModelStatus) if value == word), None)
    return known, known == "failed" or bool(flag(status.failed))


def _model_contexts(raw: msgspec.Raw) -> tuple[int | None, int | None]:
    try:
        meta = _meta_decoder.decode(raw)
    except UNREADABLE:
        return None, None
    return number(meta.n_ctx) or None, number(meta.n_ctx_train) or None


def _build(raw: msgspec.Raw) -> str | None:
    """The build; one made outside of a git checkout knows neither its number nor its commit."""
    build = text(raw, limit=128)
    return None if build == "b0-unknown" else build


def _alias(props: _Props) -> str | None:
    """The name that the operator gave; builds put the file's whole path there when none was given."""
    alias = text(props.model_alias, limit=_LONGEST_NAME)
    return None if alias is not None and alias == text(props.model_path, limit=4096) else alias


def _file_name(raw: msgspec.Raw) -> str | None:
    path = text(raw, limit=4096)
    return None if path is None else re.split(r"[/\\]", path)[-1][:_LONGEST_NAME] or None
