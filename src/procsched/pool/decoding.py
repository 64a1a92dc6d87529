"""From the body of a report to the value or the exception. Runs in the parent, in the delivery thread.

The only place of the parent where what a worker made is unpickled, which may run user code: never the loop.
"""

from __future__ import annotations

from procsched.core.model import Outcome
from procsched.errors import RemoteError
from procsched.spool import Spooled
from procsched.wire import decode, failure, loads

__all__ = ["decode_body"]


def decode_body(outcome: Outcome, body: object) -> object:
    """The value (raises what its unpickling raises); for a failed run the exception, which says in its cause why."""
    if outcome is Outcome.FAILED:
        return _exception(body)
    return decode(body) if isinstance(body, (bytes, Spooled)) else None


def _exception(body: object) -> BaseException:
    plain = failure(body)
    remote = RemoteError(plain.type_name, plain.message, plain.traceback)
    if plain.exception is None:
        return remote
    try:
        error = loads(plain.exception)
        if not isinstance(error, BaseException):
            return remote
        error.__cause__ = remote
    except Exception:  # its class isn't here, or its constructor doesn't match its args: the text is enough
        return remote
    return error
