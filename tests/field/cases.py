"""What went wrong for users of software like this one: one sentence per case. Each has a test, or a reason why not.

A test names its cases by ``@pytest.mark.case("B01", …)``; `test_cases` sees that none is forgotten. ``KINDS`` are the
twelve kinds of fault, in the order of ``docs/reliability.md``.
"""

from __future__ import annotations

CASES = {
    # Losing a worker
    "B01": "One worker is killed from outside, and the pool never works again.",
    "B02": "A run that exits hard takes the whole service along, or makes it restart without end.",
    "B04": "A worker dies with a lock that the others need, in the middle of a large message.",
    "B06": "A worker dies while a large argument is on its way, and the parent keeps pushing.",
    "B07": "A run calls sys.exit: its worker goes with it, and who waits hangs.",
    "B09": "A killed worker stays as a zombie that counts as alive, and isn't replaced.",
    "B10": "The run that a dead worker executed is in no record, and its waiter is never released.",
    "B12": "After the loss of a worker the program ends with status 0, as if it had been asked to.",
    "B13": "Workers that can't initialise are restarted without end, each with a traceback.",
    "B15": "A native crash: the call never returns.",
    "B16": "A time limit can't interrupt native code, and one place after the other is lost.",
    # What crosses between processes
    "B17": "An exception whose class can't be rebuilt breaks the receiver instead of failing one run.",
    "B19": "A value that can't be pickled seems to be sent, and who waits for it waits for ever.",
    "B21": "An argument that can't be pickled is found out about when it is too late to say which.",
    "B22": "An argument that became unpicklable is tried again at full speed.",
    "B24": "A value nested too deep breaks the machinery instead of the run.",
    "B25": "Large results and workers that leave after one run wait for each other.",
    "B26": "A huge result stops the scheduling, or the parent has no room for it and dies.",
    # Where the code lives
    "B28": "A task file given by its path can't be imported in a worker, or not from another directory.",
    "B30": "The task file is imported for each run, or its import starts something in workers.",
    "B31": "A script without a main guard is executed again by each worker, replacements too.",
    "B33": "A function typed at a prompt isn't found in a worker, or an old version of it is.",
    "B34": "Lambdas, closures, partials and methods can't be sent.",
    "B36": "An async function is accepted, never executed, and counted as a success.",
    # Stopping
    "B37": "After shutdown(wait=False) a long run keeps the program alive.",
    "B38": "One hung run makes the shutdown wait for ever.",
    "B39": "Ctrl-C prints a traceback for each worker.",
    "B41": "A run in an endless loop makes further signals useless.",
    "B42": "A signal to all processes of the tree kills the workers, and the orderly end loses their runs.",
    "B43": "As process 1 of a container it doesn't react, or leaves before its children.",
    "B44": "Signal handlers installed by the library: it can't be used outside the main thread.",
    "B45": "At the interpreter's exit the scheduler goes on and complains.",
    # Nothing left behind
    "B49": "The parent is killed, and idle workers stay for ever.",
    "B50": "The parent is killed, and busy workers spin or hang in a write.",
    "B52": "After shutdown there are still processes while the program lives on.",
    "B53": "Warnings about leaked semaphores at an end at which nothing was wrong.",
    "B54": "Ending a worker leaves the programs that its run had started, which hold output pipes.",
    "B56": "As process 1 it doesn't collect orphans, which become zombies.",
    # Cadence
    "B57": "After a stop of the process the missed runs come all at once.",
    "B58": "After one very long run everything that became due meanwhile runs several times.",
    "B60": "Intervals slide, by polling and by the time of the run.",
    "B62": "A job counts as executing for ever, and never runs again.",
    "B63": "A run that is a little late is dropped instead of made.",
    "B64": "A zero or negative interval is accepted, and spins.",
    # Clocks and calendars
    "B66": "The wall clock goes forward, and a job runs hundreds of times to catch up.",
    "B67": "The wall clock goes back, and jobs stand still until the old time is reached.",
    "B68": "A sleep through a suspend: the calendar job comes hours late.",
    "B69": "A job at midnight loses a day at the change of the clocks.",
    "B70": "A job at half past two runs twice on one day of the year, and not at all on another.",
    "B71": "At a change of the offset every job is silent for an hour.",
    "B74": "A job that is far away overflows the wait.",
    # Life of a job
    "B76": "A job scheduled again under its id is refused, or disturbed by the end of its old run.",
    "B78": "Two jobs under one id.",
    "B79": "A job cancelled by a listener runs once more.",
    "B80": "A cancelled job that waited for a worker runs nevertheless.",
    "B82": "A scheduler used inside a worker pretends to work.",
    "B83": "After the cancel of a job the shutdown hangs.",
    "B85": "A table changes while the loop iterates over it.",
    "B86": "A job that is due before the one slept for waits for that one.",
    # Failures are seen
    "B88": "One exception, and the job is never run again.",
    "B89": "An error in the loop leaves a program that lives and schedules nothing.",
    "B91": "A failure isn't reported, or without the place in the user's code.",
    "B92": "A dead worker leaves one sentence, without saying what it was doing.",
    "B93": "Log records of workers vanish.",
    "B95": "Lines printed by parallel runs are torn.",
    # Growth
    "B98": "Workers grow by leaks of native libraries until the system kills them.",
    "B99": "A worker that leaves after its share isn't replaced while work waits.",
    "B102": "Results that nobody reads are kept, and a worker keeps its last one.",
    "B103": "The memory of a failed run is kept by its exception.",
    "B104": "Cancelled jobs stay in the queue until their time.",
    "B106": "Too many workers for the limit of open files: half of them are started.",
    # Capacity
    "B108": "Two jobs due together: their arguments are compared, and the scheduler dies.",
    "B109": "More workers, or higher descriptors, than one wait can take.",
    "B110": "The default number of workers is that of the host's cores, not of the container's.",
    "B111": "Every worker starts a full set of numeric threads.",
    "B112": "With too few workers some jobs never run.",
    "B115": "Many jobs make each operation slow, or cost while idle.",
    # Isolation
    "B116": "What one run changes in its process is seen by the next one.",
    "B117": "Runs can't use multiprocessing.",
    "B118": "A fork of a busy parent copies a lock that is held, and the child hangs.",
    "B119": "Each process of a web server runs every job.",
    "B121": "No shared memory for semaphores, or no place for temporary files: an obscure error.",
}

WAITING: dict[str, str] = {}
"""Cases without a test, and why: what they are about isn't built yet."""
