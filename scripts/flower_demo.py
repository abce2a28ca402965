#!/usr/bin/env python3
"""Run TACO for three rounds on three SuperNodes on this machine, with TLS and new keys, and write the report."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from loopback import BIN, Loopback

ROOT = Path(__file__).parents[1]
OUT, NODES, ROUNDS = ROOT / "runs" / "flower-demo", 3, 3


def main() -> None:
    started = time.monotonic()

    def print_line(line: str) -> None:
        print(f"{time.monotonic() - started:5.0f} s  {line}", flush=True)

    shutil.rmtree(OUT, ignore_errors=True)
    with tempfile.TemporaryDirectory(prefix="fedtaco-flower-") as folder:
        print_line("Starting a SuperLink on 127.0.0.1 with a new certificate ...")
        with Loopback(Path(folder)) as federation:
            print_line(f"Registering the keys of {NODES} SuperNodes and starting them ...")
            federation.start_nodes(NODES)
            print_line(f"{NODES} nodes are online. Running examples/flower-digits for {ROUNDS} rounds ...")
            config = {"num_server_rounds": ROUNDS, "min_available_nodes": NODES, "checkpoint": str(OUT)}
            run = federation.run(ROOT / "examples" / "flower-digits", **config)
            status = federation.wait_for_run(
                run, timeout=600, on_reply=lambda node: print_line(f"The reply of node {node} has arrived.")
            )
            log = federation.run_log(run)
        for line in log.splitlines():
            if "is done" in line:
                print("        " + line[line.index("Round") :])
        print_line("All processes have ended." if not federation.alive() else "Some processes are still running.")
    if status != "finished:completed":
        print(log)
        sys.exit(f"The run ended with the status {status}.")
    subprocess.run([BIN / "fedtaco", "report", OUT], check=True)


if __name__ == "__main__":
    main()
