"""A stand-in for a worker: a fresh interpreter that is given the bytes of a payload and the sys.path of its parent."""

from __future__ import annotations

import pickle
import subprocess
import sys
from typing import Any

from procsched.shipping.payload import Payload, ship
from procsched.spool import Spooled

SEARCH = list(sys.path)  # as it was when "the workers" were started

_CHILD = """
import pickle, sys
search, source, body, args = pickle.load(sys.stdin.buffer)
sys.path[:] = search
from procsched import wire
from procsched.spool import Spooled
def decode(data):
    return wire.decode(data if type(data) is bytes else Spooled(data[0], content=data[1]))
if source is not None:
    from procsched.taskfile import import_source
    import_source(*source)
fn = decode(body)
args, kwargs = decode(args) if args else ((), {})
result = fn(*args, **kwargs)
import cloudpickle
sys.stdout.flush()
sys.stdout.buffer.write(b"--result--" + cloudpickle.dumps(result))
"""


def run_elsewhere(payload: Payload, search: list[str] = SEARCH) -> Any:
    """Decode and call in a fresh interpreter; the value comes back by cloudpickle."""
    function = payload.function
    order = pickle.dumps((search, function.source, _portable(function.body), _portable(payload.args)))
    done = subprocess.run([sys.executable, "-c", _CHILD], input=order, capture_output=True, cwd="/", check=False)
    if done.returncode:
        raise RuntimeError(done.stderr.decode())
    return pickle.loads(done.stdout.partition(b"--result--")[2])


def call_elsewhere(fn: Any, /, *args: Any, **kwargs: Any) -> Any:
    """Ship a call and run it."""
    return run_elsewhere(ship(fn, args, kwargs))


def _portable(data: bytes | Spooled) -> object:
    return data if isinstance(data, bytes) else (data.size, bytes(data.view()))
