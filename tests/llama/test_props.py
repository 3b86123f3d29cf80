from __future__ import annotations

import json
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvexporter.llama.errors import MalformedBody
from kvexporter.llama.props import Props, RouterModel, parse_error, parse_health, parse_models, parse_props
from tests.support.paths import RECORDINGS


def recorded(recording: str, endpoint: str) -> Any:
    return json.loads((RECORDINGS / recording / "endpoints.json").read_text())[endpoint]["body"]


def props_of(recording: str) -> Props:
    return parse_props(json.dumps(recorded(recording, "/props")).encode())


class TestProps:
    @pytest.mark.parametrize(
        ("recording", "slots", "context", "sleeping", "has_slots", "has_metrics"),
        [
            ("b5541/unified_overflow", 4, 1024, None, None, None),
            ("b6666/unified_overflow", 4, 1024, None, True, True),
            ("b6666/no_slots_flag", 2, 2048, None, False, True),
            ("b8635/unified_overflow", 4, 4096, False, True, True),
            ("b8635/no_metrics_flag", 2, 2048, False, True, False),
            ("b11434/unified_overflow", 4, 4096, False, True, True),
            ("b11434/no_slots_flag", 2, 2048, False, False, True),
            ("b11434/no_metrics_flag", 2, 2048, False, True, False),
            ("b11434/sleeping", 2, 2048, True, True, True),
        ],
    )
    def test_each_build_tells_its_slots_and_endpoints(
        self,
        recording: str,
        slots: int,
        context: int,
        sleeping: bool | None,
        has_slots: bool | None,
        has_metrics: bool | None,
    ) -> None:
        assert props_of(recording) == Props(
            total_slots=slots,
            slot_context=context,
            model="tiny.gguf",
            build=None,
            sleeping=sleeping,
            endpoint_slots=has_slots,
            endpoint_metrics=has_metrics,
            model_path="tiny.gguf",
        )

    def test_alias_names_the_model_before_the_file(self) -> None:
        body = b'{"total_slots":1,"model_alias":"devstral","model_path":"/srv/models/x.gguf"}'
        assert parse_props(body).model == "devstral"

    @pytest.mark.parametrize("path", ["/srv/models/x.gguf", "C:\\\\models\\\\x.gguf", "x.gguf"])
    def test_without_alias_the_file_name_without_its_folder_is_the_model(self, path: str) -> None:
        assert parse_props(f'{{"total_slots":1,"model_alias":"","model_path":"{path}"}}'.encode()).model == "x.gguf"

    def test_2024_builds_name_the_model_inside_the_generation_settings(self) -> None:
        settings = b'{"n_ctx":512,"model":"/m/y.gguf"}'
        body = b'{"system_prompt":"SECRET","default_generation_settings":' + settings + b',"total_slots":2}'
        props = parse_props(body)
        assert (props.total_slots, props.slot_context, props.model) == (2, 512, "y.gguf")
        assert "SECRET" not in repr(props)

    def test_nonsense_build_number_is_taken_as_it_is(self) -> None:
        assert parse_props(b'{"build_info":"b378-62850522e"}').build == "b378-62850522e"

    def test_a_build_that_does_not_know_itself_is_unknown(self) -> None:
        assert parse_props(b'{"build_info":"b0-unknown"}').build is None
        assert parse_props(b'{"build_info":"b0-62850522e"}').build == "b0-62850522e"

    def test_router_tells_no_model_no_slots_and_no_context(self) -> None:
        body = (
            b'{"role":"router","max_instances":4,"models_autoload":true,"model_alias":"llama-server",'
            b'"model_path":"none","default_generation_settings":{"params":null,"n_ctx":0},"ui_settings":{},'
            b'"build_info":"b0-unknown","cors_proxy_enabled":false}'
        )
        assert parse_props(body) == Props(
            total_slots=None,
            slot_context=None,
            model=None,
            build=None,
            sleeping=None,
            endpoint_slots=None,
            endpoint_metrics=None,
            router=True,
        )

    def test_fields_of_other_types_are_absent(self) -> None:
        body = b'{"total_slots":"4","default_generation_settings":[],"model_path":5,"build_info":"b1","is_sleeping":0}'
        props = parse_props(body)
        assert (props.total_slots, props.slot_context, props.model, props.sleeping) == (4, None, None, False)

    def test_control_characters_of_a_name_are_dropped_and_endless_names_refused(self) -> None:
        assert parse_props(b'{"build_info":"b1","model_path":"a\\u001b[31mb\\n"}').model == "a[31mb"
        assert parse_props(json.dumps({"build_info": "b1", "model_alias": "x" * 513}).encode()).model is None

    @pytest.mark.parametrize(
        "body",
        [b"", b"null", b"[]", b"{}", b'{"status":"ok"}', b"<html>", b'{"total_slots":', b"{" * 1000, b"\xff"],
    )
    def test_anything_but_server_properties_is_refused(self, body: bytes) -> None:
        with pytest.raises(MalformedBody):
            parse_props(body)

    def test_refused_key_is_named(self) -> None:
        with pytest.raises(MalformedBody, match="authentication_error"):
            parse_props(b'{"error":{"code":401,"message":"Invalid API Key","type":"authentication_error"}}')


class TestHealth:
    @pytest.mark.parametrize(
        ("body", "sleeping"),
        [
            (b'{"status":"ok"}', None),
            (b'{"status":"ok","sleeping":true}', True),
            (b'{"status":"ok","sleeping":false,"slots_idle":1}', False),
            (b'{"status":"ok","is_sleeping":true}', True),
            (b'{"status":"ok","sleeping":"maybe"}', None),
            (b"", None),
            (b"[]", None),
            (b"<html>", None),
            (b'{"sleeping":tr', None),
        ],
    )
    def test_only_a_fork_tells_of_sleep(self, body: bytes, sleeping: bool | None) -> None:
        assert parse_health(body) is sleeping


class TestModels:
    def test_status_of_each_model_of_a_router(self) -> None:
        body = json.dumps(
            {
                "data": [
                    {
                        "id": "a",
                        "status": {"value": "loaded", "args": ["llama-server", "--api-key", "SECRET"]},
                        "meta": {"n_ctx": 4096, "n_ctx_train": 262144},
                    },
                    {"id": "b", "status": {"value": "unloaded"}},
                    {"id": "c", "status": {"value": "loading"}},
                    {"id": "d", "status": {"value": "sleeping"}},
                    {"id": "e", "status": {"value": "failed"}},
                ],
                "object": "list",
            }
        ).encode()
        models = parse_models(body)
        assert models == (
            RouterModel("a", "loaded", failed=False, context=4096, training_context=262144),
            RouterModel("b", "unloaded", failed=False),
            RouterModel("c", "loading", failed=False),
            RouterModel("d", "sleeping", failed=False),
            RouterModel("e", "failed", failed=True),
        )
        assert "SECRET" not in repr(models)

    def test_failed_unloaded_model_is_unloaded(self) -> None:
        body = b'{"data":[{"id":"m1","status":{"value":"unloaded","exit_code":1,"failed":true}}],"object":"list"}'
        assert parse_models(body) == (RouterModel("m1", "unloaded", failed=True),)

    def test_status_word_of_the_future_is_unknown(self) -> None:
        assert parse_models(b'{"data":[{"id":"m","status":{"value":"hibernating"}}]}')[0].status is None

    @pytest.mark.parametrize("build", ["b5541", "b6666", "b8635", "b11434"])
    def test_server_of_its_own_tells_its_training_context(self, build: str) -> None:
        (model,) = parse_models(json.dumps(recorded(f"{build}/unified_overflow", "/v1/models")).encode())
        assert (model.id, model.status, model.training_context) == ("tiny.gguf", None, 262144)

    def test_models_without_an_id_are_left_out(self) -> None:
        assert parse_models(b'{"data":[{},{"id":""},{"id":7},{"id":"m","status":"loaded","meta":null}]}') == (
            RouterModel("m", None, failed=False),
        )

    def test_no_models_are_no_error(self) -> None:
        assert parse_models(b'{"data":[],"object":"list"}') == ()

    @pytest.mark.parametrize("body", [b"", b"[]", b"{}", b'{"data":{}}', b'{"data":[1]}', b"<html>", b'{"data":[{"id"'])
    def test_anything_but_a_list_of_models_is_refused(self, body: bytes) -> None:
        with pytest.raises(MalformedBody):
            parse_models(body)


class TestError:
    @pytest.mark.parametrize(
        ("body", "error"),
        [
            (b'{"error":{"code":501,"message":"x","type":"not_supported_error"}}', "not_supported_error"),
            (b'{"error":{"message":"Loading model","type":"unavailable_error","code":503}}', "unavailable_error"),
            (b'{"error":{"message":"x","code":503}}', "503"),
            (b'{"error":{"type":"Ignore all\\n","code":"400"}}', "400"),
            (b'{"error":{"type":"SECRET prompt"}}', None),
            (b'{"error":"SECRET"}', None),
            (b'{"error":{}}', None),
            (b"{}", None),
            (b"[]", None),
            (b"", None),
            (b"<html>", None),
            (b'{"error":{"type":"server_er', None),
        ],
    )
    def test_type_else_code_and_never_the_message(self, body: bytes, error: str | None) -> None:
        assert parse_error(body) == error

    def test_recorded_errors_are_told_apart(self) -> None:
        body = recorded("b5541/unified_overflow", "/slots")
        assert parse_error(json.dumps(body).encode()) == "not_supported_error"


@given(st.binary(max_size=200) | st.text(max_size=100).map(str.encode))
def test_no_bytes_raise_anything_but_malformed_body(body: bytes) -> None:
    parse_health(body)
    parse_error(body)
    for parse in (parse_props, parse_models):
        with suppress(MalformedBody):
            parse(body)


anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3),
    max_leaves=6,
)
names = st.sampled_from(
    ["total_slots", "default_generation_settings", "model_alias", "model_path", "build_info", "is_sleeping", "role"]
)


@given(st.dictionaries(names, anything))
def test_no_json_object_makes_properties_fail_in_another_way(body: dict[str, Any]) -> None:
    try:
        props = parse_props(json.dumps(body).encode())
    except MalformedBody:
        return
    assert props.model is None or len(props.model) <= 512


@given(st.lists(st.dictionaries(st.sampled_from(["id", "status", "meta"]), anything), max_size=3))
def test_no_json_models_fail_in_another_way(models: list[dict[str, Any]]) -> None:
    assert len(parse_models(json.dumps({"data": models}).encode())) <= len(models)


def test_a_model_without_a_name_of_its_own_is_named_for_its_file_not_its_folder() -> None:
    body = b'{"model_alias": "/srv/models/a.gguf", "model_path": "/srv/models/a.gguf", "total_slots": 1}'
    assert parse_props(body).model == "a.gguf"

    body = b'{"model_alias": "org/a", "model_path": "/srv/models/a.gguf", "total_slots": 1}'
    assert parse_props(body).model == "org/a"
