"""HTTP servers in this process that answer, or misbehave, in one given way each."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
import subprocess
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path


@dataclass
class Request:
    """One request as it came over the wire."""

    target: str
    headers: dict[str, str]
    connection: int
    """Number of the connection it came over, from 0."""


Behaviour = Callable[["Request", asyncio.StreamWriter], Awaitable[None]]


@dataclass
class HttpServer:
    """A running server. `requests` grows as they come; `arrived` is set by each."""

    port: int
    behaviour: Behaviour
    host: str = "127.0.0.1"
    requests: list[Request] = field(default_factory=list)
    arrived: asyncio.Event = field(default_factory=asyncio.Event)
    connections: int = 0
    open_connections: int = 0

    @property
    def url(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"http://{host}:{self.port}"

    def asked(self, path: str) -> int:
        """How often a path was asked for."""
        return sum(request.target == path for request in self.requests)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        number, self.connections = self.connections, self.connections + 1
        self.open_connections += 1
        try:
            while not writer.is_closing():
                head = await reader.readuntil(b"\r\n\r\n")
                first, *lines = head.decode("latin-1").split("\r\n")
                headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
                request = Request(first.split(" ")[1], headers, number)
                self.requests.append(request)
                self.arrived.set()
                await self.behaviour(request, writer)
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError, ssl.SSLError):
            pass
        finally:
            self.open_connections -= 1
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()


@asynccontextmanager
async def serving(
    behaviour: Behaviour,
    *,
    host: str = "127.0.0.1",
    tls: ssl.SSLContext | None = None,
    port: int = 0,
    unix_socket: Path | None = None,
) -> AsyncIterator[HttpServer]:
    """Run a server with this behaviour; everything it started is gone afterwards."""
    server = HttpServer(port, behaviour, host)
    tasks: set[asyncio.Task[None]] = set()

    def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.get_running_loop().create_task(server.serve(reader, writer))
        tasks.add(task)
        task.add_done_callback(tasks.discard)

    if unix_socket is not None:
        listener = await asyncio.start_unix_server(connected, unix_socket, ssl=tls)
    else:
        listener = await asyncio.start_server(connected, host, port, ssl=tls)
        server.port = listener.sockets[0].getsockname()[1]
    try:
        yield server
    finally:
        listener.close()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def until(condition: Callable[[], bool], seconds: float = 30) -> None:
    """Wait for what another task or the kernel will do. Raises TimeoutError if it does not happen."""
    async with asyncio.timeout(seconds):
        while not condition():  # noqa: ASYNC110
            await asyncio.sleep(0.01)


def raw(data: bytes, *, close: bool = False) -> Behaviour:
    """Send these bytes, and keep the connection unless told otherwise."""

    async def behaviour(request: Request, writer: asyncio.StreamWriter) -> None:
        writer.write(data)
        await writer.drain()
        if close:
            writer.close()

    return behaviour


def answering(body: bytes = b'{"status":"ok"}', status: int = 200, headers: str = "") -> Behaviour:
    """A complete answer over a connection that stays open."""
    return raw(f"HTTP/1.1 {status} Words\r\nContent-Length: {len(body)}\r\n{headers}\r\n".encode() + body)


async def hanging(request: Request, writer: asyncio.StreamWriter) -> None:
    """Never answer."""
    await asyncio.Event().wait()


async def one_byte_a_second(request: Request, writer: asyncio.StreamWriter) -> None:
    """Answer at once, but only a byte of the body each second."""
    writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 3600\r\n\r\n")
    while True:
        writer.write(b" ")
        await writer.drain()
        await asyncio.sleep(1)


async def endless_chunks(request: Request, writer: asyncio.StreamWriter) -> None:
    """A chunked body of 1 GiB."""
    writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
    chunk = b"10000\r\n" + bytes(0x10000) + b"\r\n"
    for _ in range(2**30 // 0x10000):
        writer.write(chunk)
        await writer.drain()


async def endless_headers(request: Request, writer: asyncio.StreamWriter) -> None:
    """Header lines without end."""
    writer.write(b"HTTP/1.1 200 OK\r\n")
    number = 0
    while True:
        number += 1
        writer.write(f"X-Filler-{number}: {'x' * 1000}\r\n".encode())
        await writer.drain()


def by_path(behaviours: dict[str, Behaviour], otherwise: Behaviour | None = None) -> Behaviour:
    """Behave by the request's target; 404 where nothing is given."""
    rest = otherwise or answering(b"{}", 404)

    async def behaviour(request: Request, writer: asyncio.StreamWriter) -> None:
        await behaviours.get(request.target, rest)(request, writer)

    return behaviour


@dataclass(frozen=True)
class Certificates:
    """A certificate authority and what it signed: a server for localhost and 127.0.0.1, and a client."""

    ca: Path
    server: Path
    server_key: Path
    client: Path
    client_key: Path

    def server_context(self, *, client_required: bool = False) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self.server, self.server_key)
        if client_required:
            context.load_verify_locations(self.ca)
            context.verify_mode = ssl.CERT_REQUIRED
        return context


def make_certificates(folder: Path) -> Certificates:
    """Write new certificates into a folder, with the openssl command."""

    def openssl(*arguments: str) -> None:
        subprocess.run(["openssl", *arguments], cwd=folder, check=True, capture_output=True, timeout=60)

    key = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes")
    authority = ("-addext", "basicConstraints=critical,CA:TRUE", "-addext", "keyUsage=critical,keyCertSign")
    # The extensions of openssl.cnf would come twice.
    (folder / "req.cnf").write_text("[req]\ndistinguished_name = dn\n[dn]\n")
    request = ("req", "-config", "req.cnf")
    openssl(*request, "-x509", *key, "-keyout", "ca.key", "-out", "ca.pem", "-subj", "/CN=Test CA", *authority)
    for name, extensions in (
        ("server", "subjectAltName=DNS:localhost,DNS:llm.example,IP:127.0.0.1"),
        ("client", "extendedKeyUsage=clientAuth"),
    ):
        (folder / f"{name}.ext").write_text(extensions)
        openssl(*request, *key, "-keyout", f"{name}.key", "-out", f"{name}.csr", "-subj", f"/CN={name}")
        signing = ("-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial", "-days", "2", "-extfile", f"{name}.ext")
        openssl("x509", "-req", "-in", f"{name}.csr", "-out", f"{name}.pem", *signing)
    return Certificates(*(folder / name for name in ("ca.pem", "server.pem", "server.key", "client.pem", "client.key")))
