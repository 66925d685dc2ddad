"""MLflow's user interface over the tracking store, on loopback unless told otherwise."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

from toolformer.errors import UserError
from toolformer.tracking import Tracker


def serve(root: Path, uri: str | None = None, host: str = "127.0.0.1", port: int = 5000) -> None:
    """Serve MLflow's user interface until Ctrl-C; for a store that is a server already, print its address.

    Port 0 is any free one, which is then printed.

    Raises:
        UserError: the port is taken or is none, or the interface ended by itself.
    """
    if not 0 <= port <= 65535:
        raise UserError(f"--port is {port}; it must be 0 (any free one) to 65535")
    tracker = Tracker(uri, root)
    if tracker.store.is_served:
        print(f"MLflow UI: {tracker.shown_uri}", flush=True)
        return
    tracker.prepare()
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
            port = probe.getsockname()[1]
        except OSError as error:
            raise UserError(
                f"port {port} of {host} cannot be used ({error.strerror}): choose another"
            ) from error
    command = [sys.executable, "-m", "mlflow", "server", "--backend-store-uri", tracker.uri]
    command += ["--default-artifact-root", (tracker.root / "artifacts").as_uri()]
    command += ["--host", host, "--port", str(port), "--workers", "1"]
    environment = os.environ | {"MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false"}
    # A session of its own: Ctrl-C reaches only us, and we end the server with all its workers.
    server = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, start_new_session=True)

    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    # SIGINT too: what a shell starts in the background inherits that it is ignored.
    previous = {sign: signal.signal(sign, stop) for sign in (signal.SIGTERM, signal.SIGINT)}
    print(f"MLflow UI: http://{host}:{port} (ready in a few seconds; Ctrl-C ends it)", flush=True)
    try:
        code = server.wait()
        raise UserError(f"the MLflow UI ended with code {code}: its message is above")
    except KeyboardInterrupt:
        print("MLflow UI ended", flush=True)
    finally:
        for sign, handler in previous.items():
            signal.signal(sign, handler)
        _end_group(server)


def _end_group(server: subprocess.Popen[bytes]) -> None:
    for sign in (signal.SIGTERM, signal.SIGKILL):
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(server.pid, sign)
        with suppress(subprocess.TimeoutExpired):
            server.wait(timeout=10)
            return
