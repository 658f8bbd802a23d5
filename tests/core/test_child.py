"""Child processes: whatever ends the parent ends them, with all that they started."""

import os
import signal
import subprocess
import sys
import textwrap
import threading
from pathlib import Path

import pytest

from autotune.core.channel import LOST, start_module
from autotune.core.child import Child, run, signal_name, stop
from tests.processes import DRIVER, alive, child_of, eventually

ROOT = Path(__file__).parents[2]


def shell(script: str) -> list[str]:
    return ["/bin/sh", "-c", script]


def test_output_and_status(tmp_path: Path) -> None:
    done = run(shell("echo out; echo err >&2; pwd; echo $WHO; exit 3"), 10, folder=tmp_path, environment={"WHO": "I"})
    assert done.output.splitlines() == ["out", "err", str(tmp_path), "I"]
    assert (done.status, done.timed_out, done.stopped) == (3, False, False)


def test_arguments_arrive_as_they_are() -> None:
    assert run(["/bin/echo", "a  b", "$HOME", "'"], 10).output == "a  b $HOME '\n"


def test_it_reads_nothing() -> None:
    assert run(["/bin/cat"], 10).output == ""


def test_what_a_signal_ended_says_which() -> None:
    done = run(shell("kill -ABRT $$"), 10)
    assert (done.status, signal_name(done.status)) == (-signal.SIGABRT, "SIGABRT")


def test_what_ends_a_job_does_not_end_it() -> None:
    assert run(shell("kill -TERM $$; kill -HUP $$; kill -INT $$; echo here"), 10).output == "here\n"


def test_a_program_that_is_not_there(tmp_path: Path) -> None:
    assert run([str(tmp_path / "nothing")], 10).status == 127
    with pytest.raises(FileNotFoundError):
        run(["/bin/true"], 10, folder=tmp_path / "no folder")


def test_a_time_limit_ends_it_and_what_it_started(tmp_path: Path) -> None:
    done = run(shell(f"echo begun; {DRIVER}"), 0.3, folder=tmp_path)
    assert (done.timed_out, done.stopped, done.output) == (True, False, "begun\n")
    if (tmp_path / "child").exists():  # a slow machine may not have come as far as that
        pid = child_of(tmp_path)
        eventually(lambda: not alive(pid))


def test_what_it_leaves_behind_ends_with_it(tmp_path: Path) -> None:
    assert run(shell("sleep 600 >/dev/null 2>&1 & echo $! > child"), 60, folder=tmp_path).status == 0
    pid = child_of(tmp_path)
    eventually(lambda: not alive(pid))


def test_another_thread_stops_it(tmp_path: Path) -> None:
    seen = []
    thread = threading.Thread(target=lambda: seen.append(run(shell(DRIVER), 600, folder=tmp_path)))
    thread.start()
    pid = child_of(tmp_path)
    assert thread.ident is not None
    stop([thread.ident])
    thread.join()
    assert (seen[0].stopped, seen[0].timed_out, seen[0].status) == (True, False, -signal.SIGKILL)
    eventually(lambda: not alive(pid))


@pytest.mark.parametrize("script", ["exit 0", "sleep 600"])
def test_a_group_is_killed_once_since_its_number_may_be_anothers_after_that(
    script: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    killed, kill = [], os.killpg

    def counted(group: int, number: int) -> None:
        killed.append(group)
        kill(group, number)

    monkeypatch.setattr(os, "killpg", counted)
    child = Child(shell(script))
    if script == "exit 0":
        assert child.wait(60.0) == 0
    else:
        child.kill()
        assert child.wait(60.0) == -signal.SIGKILL
    child.close()
    child.close()
    child.kill()
    assert killed == [child.pid]
    assert child.killed


def test_what_leaves_the_group_with_the_output_is_not_waited_for(tmp_path: Path) -> None:
    done = run(shell("echo said; setsid sleep 600 & echo $! > child; wait"), 1.0, folder=tmp_path)
    try:
        assert (done.timed_out, done.output) == (True, "said\n")
    finally:
        os.kill(child_of(tmp_path), signal.SIGKILL)


def parent(code: str, folder: Path) -> "subprocess.Popen[bytes]":
    return subprocess.Popen([sys.executable, "-c", textwrap.dedent(code), str(folder)], cwd=ROOT)


RUNS = f"""
    import pathlib, sys
    from autotune.core.child import run
    run(["/bin/sh", "-c", {DRIVER!r}], 600, folder=pathlib.Path(sys.argv[1]))
"""


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_whatever_ends_the_parent_ends_it(tmp_path: Path, number: signal.Signals) -> None:
    search = parent(RUNS, tmp_path)
    pid = child_of(tmp_path)
    assert alive(pid)
    search.send_signal(number)
    search.wait()
    eventually(lambda: not alive(pid))


def test_a_process_forked_off_the_parent_keeps_nothing_alive(tmp_path: Path) -> None:
    forks = """
        import os, pathlib, sys, time
        from autotune.core.child import Child
        folder = pathlib.Path(sys.argv[1])
        child = Child(["/bin/sh", "-c", "sleep 600 & echo $! > child; wait"], folder=folder)
        forked = os.fork()
        if forked == 0:
            time.sleep(600)
        (folder / "part").write_text(str(forked))
        (folder / "part").rename(folder / "forked")
        time.sleep(600)
    """
    search = parent(forks, tmp_path)
    pid = child_of(tmp_path)
    eventually((tmp_path / "forked").exists)
    search.kill()
    search.wait()
    forked = int((tmp_path / "forked").read_text())
    try:
        eventually(lambda: not alive(pid))
        assert alive(forked)
    finally:
        os.kill(forked, signal.SIGKILL)


def test_ctrl_c_reaches_the_parent_alone(tmp_path: Path) -> None:
    """A terminal sends SIGINT to the group in its foreground."""
    waits = """
        import os, pathlib, signal, sys
        from autotune.core.child import Child
        folder = pathlib.Path(sys.argv[1])
        child = Child(["/bin/sh", "-c", "sleep 600 & echo $! > child; wait"], folder=folder)
        signal.signal(signal.SIGINT, lambda *_: print(child.wait(0.0), flush=True))
        print("ready", flush=True)
        sys.stdin.read()
    """
    code = [sys.executable, "-c", textwrap.dedent(waits), str(tmp_path)]
    with subprocess.Popen(
        code, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, start_new_session=True
    ) as search:
        pid = child_of(tmp_path)
        assert search.stdin is not None
        assert search.stdout is not None
        assert search.stdout.readline() == "ready\n"
        os.killpg(search.pid, signal.SIGINT)
        assert search.stdout.readline() == "None\n"
        assert alive(pid)
        search.stdin.close()
    eventually(lambda: not alive(pid))


def test_a_module_is_talked_to_and_prints_to_stderr(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "echoing.py").write_text(
        "import sys\nfrom autotune.core.channel import open_channel\n"
        "channel = open_channel()\nprint('printed', flush=True)\nwhile True:\n"
        "    channel.send((channel.recv(), sys.path, sys.argv[1:]))\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    with (tmp_path / "log").open("w+b") as log:
        child, connection = start_module("echoing", arguments=["one", "two"], stderr=log)
        connection.send({"three": 4})
        assert connection.recv() == ({"three": 4}, sys.path, ["one", "two"])
        child.kill()
        with pytest.raises(LOST):
            connection.recv()
        connection.close()
        child.close()
        assert (tmp_path / "log").read_text() == "printed\n"
