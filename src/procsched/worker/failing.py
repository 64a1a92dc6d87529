"""A run's exception as plain data that always fits through. Runs in the child.

Type name, message and traceback are text; the exception itself goes along as a pickle inside when it has one, and is
unpickled by nobody but the parent's delivery.
"""

from __future__ import annotations

import os

from procsched.wire import dumps

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import TracebackType

__all__ = ["clear", "describe", "pickled", "unfinished", "unsendable"]

TEXT_LIMIT = 256 * 1024
_OURS = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


def describe(error: BaseException) -> tuple[str, str, str, bytes | None]:
    """``(type name, message, traceback, pickle or None)``, whatever the exception's own methods do."""
    traceback = _traceback(error)
    exception: bytes | None = None
    try:
        exception = pickled(error)
    except BaseException as reason:
        traceback += f"\n(The exception itself could not be sent: {_type_name(reason)}: {_message(reason)})\n"
    return _type_name(error), _message(error), traceback, exception


def unsendable(value_type: str, reason: BaseException) -> tuple[str, str, str, bytes | None]:
    """For a run whose value can't be pickled: the run failed, with the pickler's reason, of the reason's own type.

    An error of a type that takes one text gets a text that says what went wrong; any other one goes as it is.
    """
    message = f"the result cannot be sent: {value_type}: {_message(reason)}"
    told = reason
    if isinstance(reason, Exception) and type(reason).__module__ in ("builtins", "pickle", "_pickle"):
        try:
            told = type(reason)(message)
        except Exception:  # UnicodeDecodeError and its like: five arguments
            told = reason
    try:
        exception = pickled(told)
    except BaseException:
        exception = dumps(TypeError(message), 5)
    return _type_name(reason), message, _traceback(reason), exception


def unfinished(value: object) -> TypeError:
    """For a run that only made a coroutine or a generator: nothing of it was executed, so it didn't succeed."""
    kind = type(value).__name__.replace("_", " ")
    hint = "asyncio.run() it inside the function" if kind == "coroutine" else "exhaust it inside the function"
    close = getattr(value, "close", None)
    if close is not None:
        close()  # or it would warn, at some later time, that it was never awaited
    return TypeError(f"the run returned a {kind}, which nobody executes: {hint}, and return what it gives")


def pickled(value: object) -> bytes:
    """By pickle; by cloudpickle what has no importable home."""
    try:
        return dumps(value, 5)
    except (RecursionError, MemoryError):
        raise
    except Exception:
        from procsched.worker.byvalue import dumps_by_value

        return dumps_by_value(value)


def clear(error: BaseException) -> None:
    """Let go of what the frames of a failed run hold; the worker lives on, its 200 MB shouldn't."""
    seen: set[int] = set()
    pending: list[BaseException | None] = [error]
    while pending:
        current = pending.pop()
        if current is None or id(current) in seen:
            continue
        seen.add(id(current))
        pending += (current.__cause__, current.__context__)
        pending += getattr(current, "exceptions", ()) if isinstance(current, BaseExceptionGroup) else ()
        step: TracebackType | None = current.__traceback__
        while step is not None:
            try:
                step.tb_frame.clear()
            except RuntimeError:  # still running: ours
                pass
            step = step.tb_next
        try:
            current.__traceback__ = None
        except Exception:
            pass


def _traceback(error: BaseException) -> str:
    try:
        import traceback

        start = error.__traceback__
        while start is not None and start.tb_frame.f_code.co_filename.startswith(_OURS):
            start = start.tb_next  # the user's code begins below our frames
        text = "".join(traceback.format_exception(type(error), error, start or error.__traceback__))
    except BaseException as reason:  # a hostile __str__, no memory, no stack left
        return f"(no traceback: {_type_name(reason)} while it was made)\n"
    return _cut(text)


def _type_name(error: BaseException) -> str:
    kind = type(error)
    name = str(kind.__qualname__)
    module = str(kind.__module__)
    return name if module in ("builtins", "__main__") else f"{module}.{name}"


def _message(error: BaseException) -> str:
    try:
        return _cut(str(error))
    except BaseException as reason:
        return f"<no text: its __str__ raised {type(reason).__name__}>"


def _cut(text: str) -> str:
    if type(text) is not str:  # a subclass would take its class into the report
        text = str.encode(text, "utf-8", "surrogatepass").decode("utf-8", "surrogatepass")
    if len(text) <= TEXT_LIMIT:
        return text
    half = TEXT_LIMIT // 2
    return f"{text[:half]}\n… ({len(text) - TEXT_LIMIT} characters left out) …\n{text[-half:]}"
