"""MLflow's user interface over a store on this machine, on loopback by default."""

import logging
import os
import signal
import socket
import subprocess
import sys
import tempfile
from contextlib import suppress
from pathlib import Path

from toolformer.errors import UserError
from toolformer.tracking.store import Store
from toolformer.tracking.views import BY_K, SCORES, write_views

log = logging.getLogger(__name__)

_TRAINING = "workflowType=machine_learning"
"""Without it MLflow's pages open in their view of agents, until one has clicked on model training."""
LOOPBACK = ("127.0.0.1", "localhost", "::1")


def serve(root: Path, uri: str | None = None, host: str = "127.0.0.1", port: int = 5000) -> None:
    """Serves MLflow's user interface until Ctrl-C; where `tracking.uri` names a server, prints its address.

    UserError if the port is in use, or the interface ends by itself.
    """
    if not 1 <= port <= 65535:
        raise UserError(f"--port is {port}; it must be 1 to 65535")
    store = Store(root, uri)
    if store.is_served:
        print(f"MLflow UI: {store.label}", flush=True)
        return
    try:
        socket.create_server((host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET).close()
    except OSError as error:
        raise UserError(
            f"--port {port} of {host} cannot be used ({os.strerror(error.errno or 0)}); name another --port"
        ) from error
    if store.database and not store.database.exists():
        log.info("%s is new, so it has no run; toolformer runs log logs those of %s to it", store.label, root)
    with store.errors():
        experiment = store.experiment
        write_views(store)
    command = _command(store, host, port)
    if host not in LOOPBACK:
        log.warning(
            "%s: everyone who reaches this address can see and change all runs; there is no login", host
        )
    environment = os.environ | {"PYTHONSAFEPATH": "1", "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false"}
    # Not on the command line, which other users of the machine can list.
    environment["MLFLOW_BACKEND_STORE_URI"] = store.uri

    address = f"[{host}]" if ":" in host else host
    with tempfile.TemporaryDirectory() as empty:
        # A separate session: Ctrl-C reaches only us, and we stop the server with all its workers.
        server = subprocess.Popen(
            command, env=environment, cwd=empty, stdout=subprocess.DEVNULL, start_new_session=True
        )
        page = f"http://{address}:{port}/#/experiments/{experiment}/runs?{_TRAINING}&viewStateShareKey="
        print(
            f"MLflow UI: {page}{SCORES} (ready in a few seconds; no login: every user of this machine sees and changes the runs; "
            f"Ctrl-C ends it)\nscores by k: {page}{BY_K}&compareRunsMode=CHART",
            flush=True,
        )
        try:
            code = server.wait()
            raise UserError(f"the MLflow UI ended with code {code}: its message is above")
        except KeyboardInterrupt:
            print("MLflow UI ended", flush=True)
        finally:
            for sign in (signal.SIGTERM, signal.SIGKILL):
                with suppress(ProcessLookupError, PermissionError, subprocess.TimeoutExpired):
                    os.killpg(server.pid, sign)
                    server.wait(timeout=10)
                    break


def _command(store: Store, host: str, port: int) -> list[str]:
    """MLflow's server. -P keeps Python from importing from the working directory."""
    command = [sys.executable, "-P", "-m", "mlflow", "server", "--host", host, "--port", str(port)]
    command += ["--workers", "1", "--artifacts-destination", store.artifacts.as_uri()]
    if host in LOOPBACK:  # a name that another page resolves to this machine is refused
        names = ("127.0.0.1", "localhost", "[::1]")
        command += ["--allowed-hosts", ",".join(f"{name}:{port}" for name in names)]
    return command
