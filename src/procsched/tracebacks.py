"""Tracebacks as the author of the code should see them: no frame of ours, none of importlib. Anywhere."""

from __future__ import annotations

import os

__all__ = ["passed_through_user_code", "trimmed_traceback"]

_OURS = (os.path.dirname(os.path.abspath(__file__)) + os.sep, "<frozen importlib")


def passed_through_user_code(error: BaseException) -> bool:
    """Whether the traceback of the error itself, its causes aside, has a frame that is neither ours nor importlib's."""
    frames = error.__traceback__
    while frames is not None:
        if not _is_ours(frames.tb_frame.f_code.co_filename):
            return True
        frames = frames.tb_next
    return False


def trimmed_traceback(error: BaseException) -> str:
    """The traceback of an error as its author should see it: frames of procsched and of importlib are left out."""
    import traceback

    shown = traceback.TracebackException.from_exception(error)
    seen: set[int] = set()

    def trim(one: traceback.TracebackException | None) -> None:
        if one is None or id(one) in seen:
            return
        seen.add(id(one))
        kept = [frame for frame in one.stack if not _is_ours(frame.filename)]
        one.stack = traceback.StackSummary.from_list(kept)
        trim(one.__cause__)
        trim(one.__context__)
        for inner in one.exceptions or ():
            trim(inner)

    trim(shown)
    return "".join(shown.format())


def _is_ours(filename: str) -> bool:
    return filename.startswith(_OURS)
