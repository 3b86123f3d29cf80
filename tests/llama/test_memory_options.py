"""Launch options that decide about memory, from the command line and the environment."""

from __future__ import annotations

from kvexporter.llama.memory_options import LONGEST, memory_options


def test_all_spellings_of_an_option_are_one() -> None:
    for arguments in (["-c", "4096"], ["--ctx-size", "4096"], ["--ctx_size=4096"], ["-c", "1", "-c", "4096"]):
        assert memory_options(arguments, {}) == {"-c": "4096"}
    assert memory_options([], {"LLAMA_ARG_CTX_SIZE": "4096"}) == {"-c": "4096"}


def test_the_command_line_beats_the_environment() -> None:
    environment = {"LLAMA_ARG_CTX_SIZE": "1", "LLAMA_ARG_KV_UNIFIED": "1", "LLAMA_ARG_HOST": "x"}
    assert memory_options(["-c", "2"], environment) == {"-c": "2", "-kvu": "1"}


def test_flags_are_on_and_flash_attention_takes_a_word_or_none() -> None:
    assert memory_options(["--no-mmap", "-kvu"], {}) == {"--no-mmap": "on", "-kvu": "on"}
    assert memory_options(["-fa", "-c", "1"], {}) == {"-fa": "on", "-c": "1"}
    assert memory_options(["-fa", "off", "-c", "1"], {}) == {"-fa": "off", "-c": "1"}
    assert memory_options(["--flash-attn=auto"], {}) == {"-fa": "auto"}


def test_options_that_may_hold_secrets_or_have_no_part_in_memory_are_left_out() -> None:
    arguments = ["--api-key", "hunter2", "--host", "0.0.0.0", "--model-url", "https://user:pass@host/x.gguf"]
    assert memory_options(arguments, {"LLAMA_API_KEY": "hunter2"}) == {}


def test_long_values_are_cut_and_a_missing_one_is_empty() -> None:
    assert memory_options(["-ot", "x" * 5000, "-c"], {}) == {"-ot": "x" * LONGEST, "-c": ""}
