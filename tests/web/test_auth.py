"""Basic authentication: who is let in, how long it takes, and what is remembered."""

from __future__ import annotations

import asyncio
import base64
import threading
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TypeVar

import bcrypt
import httpx
import pytest

from kvexporter.web import auth
from kvexporter.web.app import create_app
from kvexporter.web.auth import MAX_REMEMBERED, Authenticator, Credentials, read_credentials
from kvexporter.web.config_file import RateLimitConfig
from kvexporter.web.config_values import Users
from kvexporter.web.guard import RateLimiter
from kvexporter.web.live_config import LiveWebConfig
from tests.support.snapshots import FULL, exporter
from tests.support.web_server import ALICE, BOB, RunningWeb

T = TypeVar("T")
PATHS = ("/", "/metrics", "/-/healthy", "/-/ready", "/-/reload", "/nothing", "/../etc/passwd", "/metrics/")


def basic(text: str, scheme: str = "Basic") -> str:
    return f"{scheme} {base64.b64encode(text.encode()).decode()}"


def written(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "web.yml"
    path.write_text(text)
    return path


def with_client(path: Path, test: Callable[[httpx.AsyncClient], Awaitable[T]]) -> T:
    async def run() -> T:
        snapshot = exporter(FULL)
        app = create_app(lambda: snapshot, lambda: True, lambda: True, web_config=LiveWebConfig(path))
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://kvexporter") as client:
            return await test(client)

    return asyncio.run(run())


def statuses(path: Path, *headers: dict[str, str], url: str = "/metrics") -> list[int]:
    async def ask(client: httpx.AsyncClient) -> list[int]:
        return [(await client.get(url, headers=one)).status_code for one in headers]

    return with_client(path, ask)


@pytest.fixture
def compared(monkeypatch: pytest.MonkeyPatch) -> list[tuple[bytes, bytes]]:
    """Each (password, hash) that was given to bcrypt."""
    calls: list[tuple[bytes, bytes]] = []
    real = bcrypt.checkpw

    def checkpw(password: bytes, hashed: bytes) -> bool:
        assert threading.current_thread() is not threading.main_thread(), "bcrypt would hold up the event loop"
        calls.append((password, hashed))
        return real(password, hashed)

    monkeypatch.setattr(bcrypt, "checkpw", checkpw)
    return calls


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("method", ["GET", "HEAD", "POST", "OPTIONS", "DELETE"])
def test_every_path_and_method_needs_the_password(path: str, method: str, tmp_path: Path) -> None:
    async def ask(client: httpx.AsyncClient) -> httpx.Response:
        return await client.request(method, path)

    answer = with_client(written(tmp_path, ALICE), ask)
    assert answer.status_code == 401
    assert answer.headers["www-authenticate"].startswith("Basic realm=")
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert answer.text in ("Unauthorized\n", "")


@pytest.mark.parametrize(
    ("header", "status"),
    [
        (basic("alice:fakepassword"), 200),
        (basic("alice:fakepassword", "bAsIc"), 200),
        (basic("bob:U*U"), 200),
        (basic("bob:fakepassword"), 401),
        (basic("alice:fakepassword2"), 401),
        (basic("alice:"), 401),
        (basic("alice"), 401),
        (basic("Alice:fakepassword"), 401),
        (basic("nobody:fakepassword"), 401),
        (basic(":fakepassword"), 401),
        (basic("alice:fakepassword\0"), 401),
        (basic("alice:fakepassword", "Bearer"), 401),
        ("Basic", 401),
        ("Basic !!!", 401),
        ("Basic YWxpY2U6ZmFrZXBhc3N3b3Jk=x", 401),
        (basic("alice:" + "x" * 8000), 401),
        ("", 401),
    ],
)
def test_only_the_right_password_of_a_known_user_is_let_in(header: str, status: int, tmp_path: Path) -> None:
    assert statuses(written(tmp_path, ALICE + BOB), {"authorization": header}) == [status]


def test_two_authorization_headers_are_none() -> None:
    right = basic("alice:fakepassword").encode()
    assert read_credentials([right]) == Credentials(b"alice", b"fakepassword")
    assert read_credentials([right, right]) is None
    assert read_credentials([]) is None


def test_a_password_with_colons_is_taken_whole() -> None:
    assert read_credentials([basic("a:b:c").encode()]) == Credentials(b"a", b"b:c")


def test_passwords_beyond_72_bytes_are_cut_as_the_tools_that_hash_them_do(tmp_path: Path) -> None:
    long = "p" * 72
    hashed = bcrypt.hashpw(long.encode(), bcrypt.gensalt(4)).decode()
    path = written(tmp_path, f"basic_auth_users: {{alice: {hashed}}}\n")
    headers = [{"authorization": basic(f"alice:{text}")} for text in (long, long + "more", long[:-1])]
    assert statuses(path, *headers) == [200, 200, 401]


def test_a_right_password_is_computed_once_and_a_wrong_one_each_time(
    tmp_path: Path, compared: list[tuple[bytes, bytes]]
) -> None:
    right, wrong = ({"authorization": basic(f"alice:{text}")} for text in ("fakepassword", "other"))
    assert statuses(written(tmp_path, ALICE), right, right, right, wrong, wrong, right) == [200] * 3 + [401] * 2 + [200]
    assert [password for password, _ in compared] == [b"fakepassword", b"other", b"other"]


def test_first_requests_that_come_together_are_computed_once(compared: list[tuple[bytes, bytes]]) -> None:
    users = Users({b"bob": b"$2a$05$CCCCCCCCCCCCCCCCCCCCC.E5YPO9kmyuRGyh0XouQYb4YMJKvyOeW"})

    async def run() -> list[bool]:
        check = Authenticator()
        return await asyncio.gather(*(check.admits(users, Credentials(b"bob", b"U*U")) for _ in range(10)))

    assert asyncio.run(run()) == [True] * 10
    assert len(compared) == 1


def test_an_unknown_user_costs_as_much_as_a_known_one(compared: list[tuple[bytes, bytes]]) -> None:
    users = Users({b"a": bcrypt.hashpw(b"a", bcrypt.gensalt(4)), b"b": bcrypt.hashpw(b"b", bcrypt.gensalt(5))})

    async def run() -> None:
        check = Authenticator()
        for name in (b"x", b"x", b"y", b"a"):
            # Even with a password that is right for one of the hashes.
            assert not await check.admits(users, Credentials(name, b"b"))

    asyncio.run(run())
    assert len(compared) == 4, "one computation for each, known or not"
    hashes = [hashed for _, hashed in compared]
    assert set(hashes) <= set(users.hashes.values()), "of the same cost as the real ones"
    assert hashes[0] == hashes[1], "the same for a name each time, as for a known one"


def test_a_changed_hash_ends_what_was_remembered(tmp_path: Path) -> None:
    path = written(tmp_path, ALICE)
    right = {"authorization": basic("alice:fakepassword")}

    async def ask(client: httpx.AsyncClient) -> list[int]:
        found = [(await client.get("/metrics", headers=right)).status_code]
        path.write_text(BOB.replace("  bob", "basic_auth_users:\n  alice"))
        found.append((await client.get("/metrics", headers=right)).status_code)
        path.write_text("basic_auth_users: {}\n")
        found.append((await client.get("/metrics")).status_code)
        return found

    assert with_client(path, ask) == [200, 401, 200]


def test_what_is_remembered_is_bounded_and_holds_no_password(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(auth, "_matches", lambda password, hashed: True)
    users = Users({b"alice": b"hash"})

    async def run() -> Authenticator:
        check = Authenticator()
        for number in range(MAX_REMEMBERED + 20):
            assert await check.admits(users, Credentials(b"alice", b"hunter2-%d" % number))
        return check

    check = asyncio.run(run())
    assert len(check._passed) == MAX_REMEMBERED
    assert "hunter2" not in repr(check.__dict__)
    assert "hunter2" not in repr(Credentials(b"alice", b"hunter2"))


def test_the_loop_turns_while_a_password_is_computed(monkeypatch: pytest.MonkeyPatch) -> None:
    turned = threading.Event()

    def slow(password: bytes, hashed: bytes) -> bool:
        return turned.wait(20)

    monkeypatch.setattr(auth, "_matches", slow)

    async def run() -> bool:
        check = asyncio.create_task(Authenticator().admits(Users({b"a": b"h"}), Credentials(b"a", b"p")))
        await asyncio.sleep(0.05)
        assert not check.done()
        turned.set()
        return await check

    assert asyncio.run(run())


def test_configured_headers_are_on_every_answer_and_take_the_place_of_ours(tmp_path: Path) -> None:
    headers = (
        'http_server_config:\n  headers:\n    Content-Security-Policy: "default-src https:"\n'
        "    X-Frame-Options: sameorigin\n    X-XSS-Protection: ''\n    Strict-Transport-Security: max-age=60\n"
    )

    async def ask(client: httpx.AsyncClient) -> list[httpx.Response]:
        right = {"authorization": basic("alice:fakepassword")}
        return [await client.get("/"), await client.get("/", headers=right), await client.get("/no", headers=right)]

    answers = with_client(written(tmp_path, headers + ALICE), ask)
    assert [answer.status_code for answer in answers] == [401, 200, 404]
    for answer in answers:
        assert answer.headers.get_list("content-security-policy") == ["default-src https:"]
        assert answer.headers["x-frame-options"] == "sameorigin"
        assert answer.headers["strict-transport-security"] == "max-age=60"
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert "x-xss-protection" not in answer.headers


def test_requests_beyond_the_rate_are_turned_away_before_the_password(
    tmp_path: Path, compared: list[tuple[bytes, bytes]]
) -> None:
    path = written(tmp_path, "rate_limit: {interval: 24h, burst: 3}\n" + ALICE)
    wrong = {"authorization": basic("alice:x")}
    assert statuses(path, wrong, wrong, wrong, wrong, {}) == [401, 401, 401, 429, 429]
    assert len(compared) == 3


def test_a_bucket_of_requests_fills_again() -> None:
    now = 100.0
    limiter = RateLimiter(RateLimitConfig(interval=2.0, burst=2), lambda: now)
    assert [limiter.allows() for _ in range(3)] == [True, True, False]
    now += 2.0
    assert [limiter.allows() for _ in range(2)] == [True, False]
    now += 1000.0
    assert [limiter.allows() for _ in range(3)] == [True, True, False]


def test_without_an_interval_there_is_no_limit() -> None:
    limiter = RateLimiter(RateLimitConfig(), lambda: 0.0)
    assert all(limiter.allows() for _ in range(1000))


def test_curl_is_let_in_with_the_password_and_not_without(tmp_path: Path) -> None:
    with RunningWeb(written(tmp_path, ALICE)) as running:
        assert running.curl(scheme="http")[0] == 401
        assert running.curl("--user", "alice:wrong", scheme="http")[0] == 401
        status, text = running.curl("--user", "alice:fakepassword", scheme="http")
        assert status == 200
        assert "llama_slots" in text


@pytest.mark.parametrize("path", ["/../../etc/passwd", "/..%2f..%2fetc/passwd", "/%2e%2e/etc/passwd", "//etc/passwd"])
def test_no_path_leads_to_a_file(path: str, tmp_path: Path) -> None:
    with RunningWeb(written(tmp_path, ALICE)) as running:
        for user in (["--user", "alice:fakepassword"], []):
            status, text = running.curl("--path-as-is", *user, path=path, scheme="http")
            assert status == (404 if user else 401)
            assert "root:" not in text
            assert "passwd" not in text


def test_neither_password_nor_hash_is_in_an_answer_or_the_log(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("DEBUG")
    with RunningWeb(written(tmp_path, ALICE)) as running:
        said = [
            running.curl("--user", f"{user}:{password}", path=path, scheme="http")[1]
            for user, password in (("alice", "fakepassword"), ("alice", "hunter2"), ("hunter2", "x"))
            for path in ("/metrics", "/", "/hunter2")
        ]
        running.write(ALICE.replace("$2y$10$", "hunter2"))
        said.append(running.curl(scheme="http")[1])
    everything = "".join(said) + caplog.text
    assert "cannot be used" in caplog.text
    for secret in ("fakepassword", "hunter2", "QOauhQNbBCuQDKes6eFzPe"):
        assert secret not in everything
