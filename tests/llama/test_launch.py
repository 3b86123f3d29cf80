from __future__ import annotations

import shlex
from dataclasses import fields

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvexporter.llama.launch import MOST_VERBOSE, LaunchOptions, parse_launch
from kvexporter.llama.launch_names import ENVIRONMENT, ENVIRONMENT_OFF, FLAGS, VALUES


def launch(line: str = "", **environment: str) -> LaunchOptions:
    return parse_launch(["-m", "m.gguf", *shlex.split(line)], environment)


def value(options: LaunchOptions, field: str) -> object:
    return getattr(options, field)


class TestSpellings:
    @pytest.mark.parametrize(
        ("line", "field", "expected"),
        [
            ("-c 16384", "context", 16384),
            ("--ctx-size 16384", "context", 16384),
            ("-c 0", "context", 0),
            ("-np 4", "parallel", 4),
            ("--parallel 4", "parallel", 4),
            ("-np -1", "parallel", None),
            ("-kvu", "unified", True),
            ("--kv-unified", "unified", True),
            ("-no-kvu", "unified", False),
            ("--no-kv-unified", "unified", False),
            ("--kv-unified-per-slot 131072", "per_slot", 131072),
            ("--kv-unified-per-slot 0", "per_slot", None),
            ("-ctk q8_0", "cache_type_k", "q8_0"),
            ("--cache-type-k q8_0", "cache_type_k", "q8_0"),
            ("-ctv q4_0", "cache_type_v", "q4_0"),
            ("--cache-type-v q4_0", "cache_type_v", "q4_0"),
            ("--sleep-idle-seconds 300", "sleep_idle_seconds", 300),
            ("--sleep-idle-seconds -1", "sleep_idle_seconds", None),
            ("--metrics", "metrics", True),
            ("--slots", "slots", True),
            ("--no-slots", "slots", False),
            ("--slots-endpoint-disable", "slots", False),
            ("--host 0.0.0.0", "host", "0.0.0.0"),
            ("--host /run/llama.sock", "host", "/run/llama.sock"),
            ("--port 9931", "port", 9931),
            ("--api-prefix /llm", "api_prefix", "/llm"),
            ("--api-prefix /llm/", "api_prefix", "/llm"),
            ("--api-key-file /etc/key", "api_key_file", "/etc/key"),
            ("-a agents", "alias", "agents"),
            ("--alias agents", "alias", "agents"),
            ("-lv 4", "verbosity", 4),
            ("--verbosity 2", "verbosity", 2),
            ("--log-verbosity 2", "verbosity", 2),
            ("-v", "verbosity", MOST_VERBOSE),
            ("--verbose", "verbosity", MOST_VERBOSE),
            ("--log-verbose", "verbosity", MOST_VERBOSE),
            ("--log-file /var/log/l.log", "log_file", "/var/log/l.log"),
            ("-cram 0", "cache_ram_mib", 0),
            ("--cache-ram -1", "cache_ram_mib", -1),
            ("--cache-idle-slots", "cache_idle_slots", True),
            ("--no-cache-idle-slots", "cache_idle_slots", False),
            ("--clear-idle", "cache_idle_slots", True),
            ("--no-clear-idle", "cache_idle_slots", False),
            ("--context-shift", "context_shift", True),
            ("--no-context-shift", "context_shift", False),
            # The server takes _ for - in long options.
            ("--ctx_size 5000", "context", 5000),
            ("--kv_unified", "unified", True),
            # The server takes the digits and ignores what follows them.
            ("-c 16k", "context", 16),
            ("-c ' 4096'", "context", 4096),
        ],
    )
    def test_each_spelling_sets_its_option(self, line: str, field: str, expected: object) -> None:
        options = launch(line)
        assert value(options, field) == expected
        assert options.unknown == ()

    @pytest.mark.parametrize(
        ("line", "field", "expected"),
        [
            ("--ctx-size=4096", "context", 4096),
            ("-c=4096", "context", 4096),
            ("--cache-type-k=q8_0", "cache_type_k", "q8_0"),
            ("--kv-unified=off", "unified", False),
            ("--no-kv-unified=true", "unified", False),
            ("--no-kv-unified=0", "unified", True),
            ("--metrics=1", "metrics", True),
        ],
    )
    def test_value_may_be_joined_by_an_equals_sign(self, line: str, field: str, expected: object) -> None:
        assert value(launch(line), field) == expected

    @pytest.mark.parametrize(
        ("variables", "field", "expected"),
        [
            ({"LLAMA_ARG_CTX_SIZE": "4000"}, "context", 4000),
            ({"LLAMA_ARG_N_PARALLEL": "2"}, "parallel", 2),
            ({"LLAMA_ARG_KV_UNIFIED": "on"}, "unified", True),
            ({"LLAMA_ARG_KV_UNIFIED": "enabled"}, "unified", True),
            ({"LLAMA_ARG_KV_UNIFIED": "true"}, "unified", True),
            ({"LLAMA_ARG_KV_UNIFIED": "1"}, "unified", True),
            ({"LLAMA_ARG_KV_UNIFIED": "off"}, "unified", False),
            ({"LLAMA_ARG_KV_UNIFIED": "disabled"}, "unified", False),
            ({"LLAMA_ARG_KV_UNIFIED": "false"}, "unified", False),
            ({"LLAMA_ARG_KV_UNIFIED": "0"}, "unified", False),
            ({"LLAMA_ARG_KV_SPLIT": "1"}, "unified", True),
            ({"LLAMA_ARG_NO_KV_UNIFIED": "0"}, "unified", False),
            ({"LLAMA_ARG_KV_UNIFIED": "1", "LLAMA_ARG_NO_KV_UNIFIED": "0"}, "unified", False),
            ({"LLAMA_ARG_KV_UNIFIED_PER_SLOT": "1024"}, "per_slot", 1024),
            ({"LLAMA_ARG_CACHE_TYPE_K": "q8_0"}, "cache_type_k", "q8_0"),
            ({"LLAMA_ARG_CACHE_TYPE_V": "q8_0"}, "cache_type_v", "q8_0"),
            ({"LLAMA_ARG_ENDPOINT_METRICS": "1"}, "metrics", True),
            ({"LLAMA_ARG_ENDPOINT_SLOTS": "off"}, "slots", False),
            ({"LLAMA_ARG_NO_ENDPOINT_SLOTS": "1"}, "slots", False),
            ({"LLAMA_ARG_HOST": "0.0.0.0"}, "host", "0.0.0.0"),
            ({"LLAMA_ARG_PORT": "9000"}, "port", 9000),
            ({"LLAMA_ARG_API_PREFIX": "/x"}, "api_prefix", "/x"),
            ({"LLAMA_ARG_API_KEY_FILE": "/k"}, "api_key_file", "/k"),
            ({"LLAMA_ARG_ALIAS": "a"}, "alias", "a"),
            ({"LLAMA_ARG_LOG_VERBOSITY": "2"}, "verbosity", 2),
            ({"LLAMA_LOG_VERBOSITY": "2"}, "verbosity", 2),
            ({"LLAMA_ARG_LOG_FILE": "/l"}, "log_file", "/l"),
            ({"LLAMA_ARG_CACHE_RAM": "-1"}, "cache_ram_mib", -1),
            ({"LLAMA_ARG_CACHE_IDLE_SLOTS": "0"}, "cache_idle_slots", False),
            ({"LLAMA_ARG_CLEAR_IDLE": "1"}, "cache_idle_slots", True),
            ({"LLAMA_ARG_CONTEXT_SHIFT": "1"}, "context_shift", True),
            ({"LLAMA_ARG_NO_CONTEXT_SHIFT": "1"}, "context_shift", False),
        ],
    )
    def test_each_variable_sets_its_option(self, variables: dict[str, str], field: str, expected: object) -> None:
        options = parse_launch(["-m", "m"], variables)
        assert value(options, field) == expected
        assert options.unknown == ()

    def test_all_names_lead_to_an_option_that_is_read(self) -> None:
        """A spelling of the tables that nothing reads would be silently lost."""
        options = {field.name for field in fields(LaunchOptions)}
        renamed = {
            "tls_key",
            "tls_certificate",
            "model_url",
            "docker",
            "repository",
            "cache_ram",
            "models_dir",
            "models_preset",
            "models_max",
        }
        named = {*VALUES.values(), *(name for name, _ in FLAGS.values())}
        named |= {name for _, name in (*ENVIRONMENT, *ENVIRONMENT_OFF)}
        assert named <= options | renamed


class TestPrecedence:
    def test_last_of_repeated_options_counts(self) -> None:
        assert launch("-c 4096 --ctx-size 8192").context == 8192
        assert launch("-kvu --no-kv-unified").unified is False
        assert launch("-c abc -c 4096") == launch("-c 4096")

    def test_command_line_beats_the_environment(self) -> None:
        assert launch("-c 4096", LLAMA_ARG_CTX_SIZE="8192").context == 4096
        assert launch("-kvu", LLAMA_ARG_NO_KV_UNIFIED="1").unified is True

    def test_nothing_given_is_all_unknown(self) -> None:
        assert launch() == LaunchOptions(model="m.gguf")

    def test_options_that_are_not_of_interest_are_passed_over_with_their_values(self) -> None:
        options = launch("-t 4 -n -1 --seed -1 -ngl 99 --jinja -fa on --ctx-checkpoints 8 -c 4096 stray")
        assert options == LaunchOptions(context=4096, model="m.gguf")

    def test_draft_models_options_are_not_the_models(self) -> None:
        options = launch(
            "-md draft.gguf -hfd o/draft -ctkd q4_0 --cache-type-v-draft q4_0 -cd 512 --ctx-size-draft 512"
        )
        assert options == LaunchOptions(model="m.gguf")


class TestUnreadable:
    @pytest.mark.parametrize(
        ("line", "field", "unknown"),
        [
            ("-c abc", "context", "-c=abc"),
            ("-c -5", "context", "-c=-5"),
            ("-c 99999999999", "context", "-c=99999999999"),
            ("-c 123456789012345678901", "context", "-c=123456789012345678901"),
            ("-np 0", "parallel", "-np=0"),
            ("--sleep-idle-seconds 0", "sleep_idle_seconds", "--sleep-idle-seconds=0"),
            ("--sleep-idle-seconds -2", "sleep_idle_seconds", "--sleep-idle-seconds=-2"),
            ("--port 70000", "port", "--port=70000"),
            ("--kv-unified=maybe", "unified", "--kv-unified=maybe"),
            ("-c", "context", "-c="),
            ("--ctx-size=", "context", "--ctx-size="),
            ("-c \uff11\uff16", "context", "-c=\uff11\uff16"),
        ],
    )
    def test_value_that_cannot_be_read_is_listed_and_left_out(self, line: str, field: str, unknown: str) -> None:
        options = launch(line)
        assert value(options, field) is None
        assert options.unknown == (unknown,)

    def test_variable_that_cannot_be_read_is_listed_by_its_name(self) -> None:
        assert launch(LLAMA_ARG_KV_UNIFIED="TRUE").unknown == ("LLAMA_ARG_KV_UNIFIED=TRUE",)

    def test_listed_value_is_short_and_printable(self) -> None:
        (unknown,) = launch("-c '\x1b[31m" + "x" * 500 + "'").unknown
        assert unknown.isprintable()
        assert len(unknown) < 50


class TestSecrets:
    @pytest.mark.parametrize("line", ["--api-key SECRET", "--api-key=SECRET", "--api_key SECRET", "--api-key a,SECRET"])
    def test_key_is_noticed_and_not_kept(self, line: str) -> None:
        options = launch(line)
        assert options.api_key
        assert "SECRET" not in repr(options)

    def test_key_in_the_environment_is_noticed_and_not_kept(self) -> None:
        options = launch(LLAMA_API_KEY="SECRET")
        assert options.api_key
        assert "SECRET" not in repr(options)

    def test_key_file_demands_a_key(self) -> None:
        assert launch("--api-key-file /k").api_key

    def test_no_key_is_no_key(self) -> None:
        assert not launch().api_key

    def test_download_address_is_shown_without_its_credentials(self) -> None:
        options = parse_launch(["-mu", "https://user:SECRET@host/models/m.gguf?token=SECRET"], {})
        assert options.model == "m.gguf"
        assert "SECRET" not in repr(options)

    @pytest.mark.parametrize("address", ["https://host", "https://[SECRET/x.gguf", "https://host/?SECRET"])
    def test_download_address_without_a_file_name_is_a_download(self, address: str) -> None:
        assert parse_launch(["-mu", address], {}).model == "download"


class TestModel:
    @pytest.mark.parametrize(
        ("arguments", "environment", "model"),
        [
            (["--model", "/m/a.gguf"], {}, "/m/a.gguf"),
            (["-hf", "org/repo:Q4_K_M"], {}, "org/repo:Q4_K_M"),
            (["-hfr", "org/repo"], {}, "org/repo"),
            (["--hf-repo", "org/repo", "-hff", "x.gguf"], {}, "org/repo"),
            (["-dr", "ai/smollm2"], {}, "ai/smollm2"),
            (["--docker-repo", "ai/smollm2"], {}, "ai/smollm2"),
            (["--model-url", "https://h/m.gguf"], {}, "m.gguf"),
            (["--gpt-oss-20b-default"], {}, "gpt-oss-20b-default"),
            (["--fim-qwen-7b-spec"], {}, "fim-qwen-7b-spec"),
            ([], {"LLAMA_ARG_MODEL": "/m/a.gguf"}, "/m/a.gguf"),
            ([], {"LLAMA_ARG_HF_REPO": "org/repo"}, "org/repo"),
            ([], {"LLAMA_ARG_DOCKER_REPO": "ai/x"}, "ai/x"),
            ([], {"LLAMA_ARG_MODEL_URL": "https://h/m.gguf"}, "m.gguf"),
        ],
    )
    def test_every_way_to_name_a_model(self, arguments: list[str], environment: dict[str, str], model: str) -> None:
        options = parse_launch(arguments, environment)
        assert (options.model, options.router) == (model, False)

    def test_speculation_preset_names_no_model(self) -> None:
        assert parse_launch(["--spec-default"], {}).model is None


class TestRouter:
    @pytest.mark.parametrize("line", ["", "-c 4096 -np 2", "--models-dir /m", "--models-preset /p.ini --models-max 2"])
    def test_server_without_a_model_is_a_router(self, line: str) -> None:
        assert parse_launch(shlex.split(line), {}).router

    def test_routers_child_is_none_though_it_inherits_the_folder(self) -> None:
        arguments = shlex.split(
            "--host 127.0.0.1 --port 41239 --alias a --ctx-size 4096 --kv-unified --model /m/a.gguf"
        )
        options = parse_launch(arguments, {"LLAMA_ARG_MODELS_DIR": "/m"})
        assert (options.router, options.port, options.alias) == (False, 41239, "a")

    def test_unreadable_environment_may_hold_the_model(self) -> None:
        options = parse_launch(["-c", "4096"], None)
        assert (options.router, options.environment_known) == (False, False)

    @pytest.mark.parametrize("line", ["--models-dir /m", "--models-preset /p.ini"])
    def test_routers_own_options_make_it_one_whatever_the_environment(self, line: str) -> None:
        assert parse_launch(shlex.split(line), None).router


class TestTls:
    def test_key_and_certificate_together_make_tls(self) -> None:
        assert launch("--ssl-key-file k --ssl-cert-file c").tls
        assert launch(LLAMA_ARG_SSL_KEY_FILE="k", LLAMA_ARG_SSL_CERT_FILE="c").tls

    @pytest.mark.parametrize("line", ["", "--ssl-key-file k", "--ssl-cert-file c"])
    def test_one_of_them_alone_does_not(self, line: str) -> None:
        assert not launch(line).tls


words = st.sampled_from([*VALUES, *FLAGS, "-v", "--api-key=", "-c=", "0", "-1", "4096", "on", "x", "=", "--", ""])


@given(
    st.lists(words | st.text(max_size=12), max_size=8),
    st.dictionaries(st.sampled_from([name for name, _ in (*ENVIRONMENT, *ENVIRONMENT_OFF)]), st.text(max_size=8)),
)
def test_no_command_line_and_no_environment_raises(arguments: list[str], environment: dict[str, str]) -> None:
    options = parse_launch(arguments, environment)
    assert options.context is None or options.context >= 0
    assert options.parallel is None or options.parallel > 0
    assert options.port is None or 0 <= options.port <= 65535
