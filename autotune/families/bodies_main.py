"""The process that renders bodies of users' templates: `python -m autotune.families.bodies_main`.

It answers one at a time over one connection until the other end closes. `autotune.families.bodies` is the other side.
"""

from multiprocessing.connection import Connection

from autotune.core.channel import LOST, open_channel
from autotune.core.confinement import confine, confine_memory
from autotune.core.errors import TemplateError
from autotune.families.bodies import LIMIT_BYTES, LONGEST, render_here


def main() -> None:
    """Entry point of the process."""
    confine()
    try:
        connection = open_channel()
        confine_memory(LIMIT_BYTES)
        while True:
            answer(connection)
    except LOST:
        pass  # the parent is done with us


def answer(connection: Connection) -> None:
    """Render what is asked for, and send the text or the error."""
    path, before, body, namespace = connection.recv()
    try:
        text = render_here(path, before, body, namespace)
        if len(text) > LONGEST:
            raise TemplateError(f"{path}: rendering gives {len(text):,} characters, more than {LONGEST:,}")
    except TemplateError as error:
        connection.send(error.with_traceback(None))
    except MemoryError:
        connection.send(TemplateError(f"{path}: rendering needs more memory than the limit of {LIMIT_BYTES >> 20} MiB"))
    else:
        connection.send(text)


if __name__ == "__main__":
    main()
