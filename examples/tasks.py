"""Three jobs that keep a machine busy with data which every machine has: Python's own standard library.

    procsched run examples/tasks.py

Results go to a folder ``output`` beside the current directory. Ctrl-C ends it.
"""

import ast
import bz2
import lzma
import math
import struct
import sysconfig
import time
import zlib
from pathlib import Path

from procsched import After, Daily, FixedDelay, FixedRate, current_run, job

LIBRARY = Path(sysconfig.get_path("stdlib"))
OUTPUT = Path("output")

BRANCHES = (ast.If, ast.For, ast.While, ast.Try, ast.With, ast.BoolOp, ast.IfExp, ast.comprehension, ast.match_case)


@job(FixedRate("1m"), timeout="10m")
def complexity():
    """Parse every module of the standard library and rank its functions by the number of branches."""
    modules = library()
    ranking = []
    for done, path in enumerate(modules):
        for node in ast.walk(ast.parse(path.read_bytes())):
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
                branches = sum(isinstance(part, BRANCHES) for part in ast.walk(node))
                ranking.append((branches, f"{path.relative_to(LIBRARY)}:{node.lineno} {node.name}"))
        current_run().progress(done / len(modules), path.name)
    ranking.sort(reverse=True)
    write("complexity.txt", "".join(f"{branches:5} {where}\n" for branches, where in ranking[:50]))


@job(FixedDelay("10s"))
def compression():
    """Compare three compressors on another tenth of the library each time."""
    text = b"".join(path.read_bytes() for path in library()[current_run().number % 10 :: 10])
    lines = [f"{len(text)} bytes of Python\n"]
    for name, compress in (("zlib", zlib.compress), ("bz2", bz2.compress), ("lzma", lzma.compress)):
        begin = time.perf_counter()
        size = len(compress(text))
        lines.append(f"{name:5} {size / len(text):6.1%} {time.perf_counter() - begin:6.2f} s\n")
    write("compression.txt", "".join(lines))


@job(After(0), id="mandelbrot-first")
@job(Daily("06:00"), id="mandelbrot")
def mandelbrot(width=800, height=600, depth=160):
    """Draw the Mandelbrot set, once at the start and then every morning, without any imaging library."""
    rows = []
    for y in range(height):
        row = bytearray([0])  # a PNG row begins with the number of its filter
        for x in range(width):
            point = complex(x / width * 3 - 2.2, y / height * 2.4 - 1.2)
            row.extend(colour(steps(point, depth) / depth))
        rows.append(bytes(row))
        current_run().progress(y / height)
    write("mandelbrot.png", png(width, height, b"".join(rows)))


def library():
    """The modules of the standard library, without its tests and without what was installed into it."""
    left_out = {"test", "tests", "site-packages", "dist-packages", "lib2to3"}
    return [path for path in sorted(LIBRARY.rglob("*.py")) if not left_out & set(path.relative_to(LIBRARY).parts)]


def steps(c, depth):
    """How soon z = z² + c runs away."""
    z = 0j
    for n in range(depth):
        z = z * z + c
        if abs(z) > 2:
            return n
    return depth


def colour(share):
    """Red, green and blue for a number from 0 to 1; the set itself is black."""
    if share == 1:
        return 0, 0, 0
    return tuple(int(127 - 127 * math.cos(share**0.5 * math.tau * k)) for k in (1.0, 1.4, 2.1))


def png(width, height, rows):
    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")


def write(name, content):
    """Replace a file of the output folder at one stroke, so that nobody sees half of it."""
    OUTPUT.mkdir(exist_ok=True)
    new = OUTPUT / f".{name}.new"
    new.write_bytes(content if isinstance(content, bytes) else content.encode())
    new.replace(OUTPUT / name)
