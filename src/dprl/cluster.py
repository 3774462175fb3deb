"""Ray clusters: connect to one that runs, or start one of this machine's own, quietly and for this user alone."""

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

LOOPBACK = "127.0.0.1"
KNOCK_SECONDS = 5.0
"""Longest wait for a connection to an ``--address``, and again for the first words of a server of Ray's."""
_SETTINGS = bytes([0, 0, 0, 4, 0, 0, 0, 0, 0])
"""A frame of settings, without any: how both sides of HTTP/2 begin. Length (3 bytes), type, flags, stream (4)."""
_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + _SETTINGS


def import_ray() -> Any:
    """Ray, set to send no statistics and to say nothing of its future."""
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    try:
        import ray
    except ImportError:
        raise DprlError("The engine ray needs Ray: install it with `pip install 'dprl[cluster]'`.") from None
    return ray


@contextmanager
def cluster(ray: Any, workers: int | None, address: str | None) -> Iterator[Sequence[int] | None]:
    """Connect to the cluster at ``address``, to the one that this process is connected to, or to one of its own.

    Gives the processors to share out where the cluster is this machine's and this run's own, else None.

    Raises:
        DprlError: there is no such cluster, or none can be started.
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


def processors() -> list[int]:
    """Return the numbers of the processors that this process may use."""
    return sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else list(range(os.cpu_count() or 1))


def _own_cluster(ray: Any, workers: int | None, quiet: Mapping[str, Any]) -> Generator[Sequence[int], None, None]:
    """Yield a cluster of this machine for this run alone; gives the processors.

    Whom it lets in may run programs: so it listens on loopback alone, and lets in those who have the token.
    """
    usable = processors()
    # Ray opens its own folder to everybody; the one around it is this user's, and removed also when it is interrupted
    with temporary_folder("dprl-ray-", Path("/tmp")) as folder:
        try:
            try:
                with warnings.catch_warnings(), _on_loopback() as there:
                    warnings.filterwarnings("ignore", "os.fork", RuntimeWarning)  # JAX's: what is forked is another
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
    """Raise OSError where nobody at HOST:PORT speaks HTTP/2, as all servers of Ray do; Ray itself would try for
    minutes, and for ever where somebody listens and says nothing.
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
    """Return options of ``ray.init`` by which its servers listen on this machine's own address alone.

    Ray listens there where that is its node's address, and puts the machine's address in the place of it.
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
    """Ray with a token of this process, whatever mode of authentication the environment asks for."""
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
    """Let Ray look at its environment, which it did when it was imported; there is no public way to ask."""
    from ray._raylet import AuthenticationTokenLoader, Config  # type: ignore[import-not-found]

    Config.initialize("")
    AuthenticationTokenLoader.instance().reset_cache()
