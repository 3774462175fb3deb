"""Ray clusters: connect to a running cluster, or quietly start a cluster on this machine, for this user only."""

from __future__ import annotations

import os
import secrets
import socket
import time
import warnings
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from dprl.errors import DprlError
from dprl.files import temporary_folder
from dprl.machine import processors

LOOPBACK = "127.0.0.1"
KNOCK_SECONDS = 5.0
"""Longest wait for a connection to an ``--address``, and again for the first bytes from a Ray server."""
_SETTINGS = bytes([0, 0, 0, 4, 0, 0, 0, 0, 0])
"""An empty settings frame, with which both sides of HTTP/2 begin: length (3 bytes), type, flags, stream (4 bytes)."""
_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + _SETTINGS


def import_ray() -> Any:
    """Return the module ``ray``, set to send no usage statistics and to print no warnings of future changes."""
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    try:
        import ray
    except ImportError:
        raise DprlError("The engine ray needs Ray: install it with `pip install 'dprl[cluster]'`.") from None
    return ray


@contextmanager
def cluster(ray: Any, workers: int | None, address: str | None) -> Iterator[Sequence[int] | None]:
    """Connect to the cluster at ``address``, to the cluster of this process, or to a new cluster on this machine.

    Without an address, a cluster that this process is connected to already is used; where there is none, a new cluster
    is started for this run only. The context gives the processors that a new cluster may share out, else None.

    Raises:
        DprlError: there is no cluster at the address, or no cluster can be started.
    """
    quiet = {"log_to_driver": False, "configure_logging": False, "logging_level": "ERROR"}
    if ray.is_initialized():
        if address is not None:
            raise DprlError("This process is connected to a Ray cluster already: leave the address out.")
        yield None
        return
    if address is not None:
        try:
            _knock(address)
            ray.init(address, **quiet)
        except Exception as error:
            raise DprlError(
                f"There is no Ray cluster at {address!r} that takes this process ({type(error).__name__}): `ray "
                "status` says whether it runs."
            ) from None
        try:
            yield None
        finally:
            ray.shutdown()
        return
    with _with_token():
        yield from _own_cluster(ray, workers, quiet)


def _own_cluster(ray: Any, workers: int | None, quiet: Mapping[str, Any]) -> Generator[Sequence[int], None, None]:
    """Start a cluster on this machine for this run only, and yield the processors that it may use.

    Whoever can connect to a cluster may run programs. So this one listens on loopback only, and requires the token.
    """
    usable = processors()
    # Ray opens its own folder to everybody; the folder around it is this user's, and is removed on interrupts, too
    with temporary_folder("dprl-ray-", Path("/tmp")) as folder:
        try:
            try:
                with warnings.catch_warnings(), _on_loopback() as there:
                    warnings.filterwarnings("ignore", "os.fork", RuntimeWarning)  # JAX's; Ray execs after it
                    ray.init(
                        "local",
                        num_cpus=len(usable) if workers is None else workers,
                        include_dashboard=False,
                        object_store_memory=1 << 28,
                        _temp_dir=str(folder / "r"),
                        **there,
                        **quiet,
                    )
                    if [node["NodeManagerAddress"] for node in ray.nodes()] != [LOOPBACK]:
                        raise RuntimeError("Ray listens elsewhere.")
            except Exception as error:
                raise DprlError(f"Ray cannot be started on this machine ({type(error).__name__}).") from None
            yield usable
        finally:
            ray.shutdown()


def _knock(address: str) -> None:
    """Raise OSError where nothing at HOST:PORT speaks HTTP/2, as all Ray servers do.

    Ray itself would try for minutes, and for ever where a server listens but does not answer.
    """
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if not host or not port.isdecimal() or "/" in host or os.environ.get("RAY_USE_TLS", "0") != "0":
        return
    with socket.create_connection((host.strip("[]"), int(port)), timeout=KNOCK_SECONDS) as line:
        until = time.monotonic() + KNOCK_SECONDS
        line.sendall(_PREFACE)
        answer = b""
        while len(answer) < len(_SETTINGS):
            line.settimeout(max(until - time.monotonic(), 1e-3))
            received = line.recv(len(_SETTINGS) - len(answer))
            if not received:
                raise ConnectionError("The line was closed.")
            answer += received
    if answer[3:5] != _SETTINGS[3:5]:
        raise ConnectionError("This is no HTTP/2.")


@contextmanager
def _on_loopback() -> Iterator[dict[str, str]]:
    """Yield options of ``ray.init`` with which its servers listen on the loopback address only.

    Ray listens there if loopback is its node's address, but would replace loopback by the machine's address. Inside the
    block the function that replaces it is switched off.
    """
    from ray._private import services  # type: ignore[import-not-found]

    replaced = services.resolve_ip_for_localhost
    services.resolve_ip_for_localhost = lambda host: host
    try:
        yield {"_node_ip_address": LOOPBACK}
    finally:
        services.resolve_ip_for_localhost = replaced


@contextmanager
def _with_token() -> Iterator[None]:
    """Let Ray use a token of this process inside the block, whatever authentication the environment asks for."""
    settings = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(32)}
    before = {name: os.environ[name] for name in settings if name in os.environ}
    os.environ.update(settings)
    try:
        _read_again()
        yield
    finally:
        for name in settings.keys() - before.keys():
            del os.environ[name]
        os.environ.update(before)
        _read_again()


def _read_again() -> None:
    """Let Ray read its environment again, which it read when it was imported; Ray has no public function for this."""
    from ray._raylet import AuthenticationTokenLoader, Config  # type: ignore[import-not-found]

    Config.initialize("")
    AuthenticationTokenLoader.instance().reset_cache()
