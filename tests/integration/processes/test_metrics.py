"""`run --metrics` keeps a file that Prometheus's tools accept, and that node_exporter serves while the training runs."""
import pathlib
import re
import shutil
import socket
import subprocess
import time
import urllib.request

import training

SCRIPT = pathlib.Path(__file__).parents[1] / "scripts" / "verified.py"


def values(text):
    """name -> {labels: value}"""
    found = {}
    for name, labels, value in re.findall(r"^(sentinel_\w+)\{(.*)\} (\S+)$", text, re.M):
        found.setdefault(name, {})[labels] = float(value)
    return found


def total(found, name):
    return sum(found[name].values())


def test_what_the_file_says(sentinel, python, tmp_path):
    file, summary = tmp_path / "sentinel.prom", tmp_path / "summary.json"
    outcome = sentinel("run", "--fast", "40%", "--metrics", file, "--summary", summary, "--", python, SCRIPT)
    assert outcome.status == 0, outcome.err
    text = file.read_text()
    checked = subprocess.run(["promtool", "check", "metrics"], input=text, capture_output=True, text=True)
    assert (checked.returncode, checked.stdout + checked.stderr) == (0, "")
    found = values(text)
    summary = training.read_json(summary)
    steps = summary["steps"]
    assert total(found, "sentinel_steps_total") == len(steps)
    assert total(found, "sentinel_demand_faults_total") == sum(step["demand_faults"] for step in steps)
    assert total(found, "sentinel_fast_limit_bytes") == summary["fast_limit_bytes"]
    moved = {re.search(r'direction="(\w+)",tier="ssd"', labels)[1]: value
             for labels, value in found["sentinel_moved_bytes_total"].items()}
    assert moved == {"in": sum(step["promoted_bytes"] for step in steps),
                     "out": sum(step["demoted_bytes"] for step in steps)}
    assert 'policy="sentinel"' in text and 'framework="torch' in text and 'rank="0"' in text
    assert [path.name for path in tmp_path.iterdir() if path.suffix not in (".prom", ".json")] == []


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def test_node_exporter_serves_it_while_it_trains(build, python, tmp_path):
    port = free_port()
    exporter = subprocess.Popen(
        [shutil.which("prometheus-node-exporter"), "--collector.disable-defaults", "--collector.textfile",
         f"--collector.textfile.directory={tmp_path}", f"--web.listen-address=127.0.0.1:{port}"],
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    trains = subprocess.Popen([build / "bin" / "sentinel", "run", "--fast", "40%", "--metrics",
                               tmp_path / "training.prom", "--", python, SCRIPT, "none", "1000000"],
                              stdout=subprocess.DEVNULL)
    try:
        seen = set()
        for _ in range(600):
            time.sleep(0.1)
            assert trains.poll() is None
            try:
                with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
                    found = values(answer.read().decode())
            except OSError:  # it does not listen yet
                continue
            if "sentinel_steps_total" in found:
                seen.add(total(found, "sentinel_steps_total"))
            if len(seen) == 3:
                break
        assert len(seen) == 3, "the count of steps grows while it trains"
    finally:
        trains.terminate()
        trains.wait(60)
        exporter.kill()
        exporter.wait()


def test_a_place_that_cannot_be_written(sentinel, python, tmp_path):
    outcome = sentinel("run", "--fast", "40%", "--metrics", tmp_path / "none" / "m.prom", "--", python, SCRIPT)
    assert outcome.status == 125 and "cannot write the metrics into" in outcome.err
