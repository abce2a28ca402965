"""Processes of a group end together, whatever happens to them or to the process that started them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from fedtaco import InvalidInput
from fedtaco.errors import ProcessDied
from fedtaco.flower import process_group
from fedtaco.flower.process_group import ProcessGroup

STUBBORN = "trap '' TERM; echo stubborn; while :; do sleep 0.1; done"
HAS_DETACHED_CHILD = "setsid sh -c 'while :; do sleep 0.1; done' & echo parent; wait"


@pytest.fixture
def group(tmp_path, monkeypatch):
    monkeypatch.setattr(process_group, "GRACE", 0.5)
    group = ProcessGroup(tmp_path, {"GROUP": str(tmp_path)}, mark="GROUP")
    yield group
    group.stop()


def start(group, name, script):
    process = group.start(name, "sh", "-c", script)
    wait_for(lambda: group.log_of(name).stat().st_size > 0)
    return process


def wait_for(holds):
    deadline = time.monotonic() + 20
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_all_processes_end_even_stubborn_and_detached_ones(group):
    start(group, "stubborn", STUBBORN)
    start(group, "parent", HAS_DETACHED_CHILD)
    assert len(group.alive()) >= 3
    group.stop()
    assert not group.alive()


def test_a_second_interrupt_kills_at_once(group, monkeypatch):
    process = start(group, "stubborn", STUBBORN)
    monkeypatch.setattr(process_group, "GRACE", 1000)
    sleep, interrupts = time.sleep, iter([KeyboardInterrupt])

    def interrupted_sleep(seconds):
        for interrupt in interrupts:
            raise interrupt
        sleep(seconds)

    monkeypatch.setattr(process_group.time, "sleep", interrupted_sleep)
    with pytest.raises(KeyboardInterrupt):
        group.stop()
    assert process.wait(10) == -signal.SIGKILL
    assert not group.alive()


def test_processes_of_others_are_left_alone(group, tmp_path):
    other = ProcessGroup(tmp_path, {"GROUP": f"{tmp_path}-other"}, mark="GROUP")
    start(other, "other", STUBBORN)
    start(group, "own", STUBBORN)
    group.stop()
    assert other.alive()
    other.stop()
    assert not other.alive()


def test_processes_end_when_the_one_that_started_them_is_killed(tmp_path):
    script = (
        "import sys, time; from pathlib import Path; from fedtaco.flower.process_group import ProcessGroup\n"
        "group = ProcessGroup(Path(sys.argv[1]), {'GROUP': sys.argv[1]}, mark='GROUP')\n"
        f"group.start('child', 'sh', '-c', {STUBBORN!r}); time.sleep(60)"
    )
    with subprocess.Popen([sys.executable, "-c", script, tmp_path]) as starter:
        group = ProcessGroup(tmp_path, {"GROUP": str(tmp_path)}, mark="GROUP")
        log = group.log_of("child")
        wait_for(lambda: log.exists() and log.stat().st_size > 0)
        assert group.alive()
        starter.kill()
    wait_for(lambda: not group.alive())


def test_a_process_that_died_is_reported_with_the_end_of_its_log(group):
    start(group, "healthy", STUBBORN)
    group.require_running()
    start(group, "node1", "echo '\x1b[92mINFO \x1b[0m:      The disk is full.'; exit 7").wait(10)
    with pytest.raises(ProcessDied, match=r"process node1 has ended with exit code 7.* log: The disk is full\.$"):
        group.require_running()


def test_commands_of_this_environment_come_first(group, tmp_path, monkeypatch):
    assert group.find("flower-superlink") == str(Path(sys.executable).with_name("flower-superlink"))
    monkeypatch.setattr(process_group, "BIN", tmp_path)
    monkeypatch.setenv("PATH", os.defpath)
    bare = ProcessGroup(tmp_path, {"GROUP": "bare"}, mark="GROUP")
    with pytest.raises(InvalidInput, match=r"no command flower-superlink in .* pip install 'fedtaco\[flower\]'"):
        bare.find("flower-superlink")
