"""Snapshots of PyTorch's CUDA allocator in every form that its versions and options write, as scripts/cases/snapshots.py
makes them. Each is read, or named for what it is."""
import gzip
import json
import pathlib
import subprocess
import sys

import pytest

MAKER = pathlib.Path(__file__).resolve().parent / "scripts/cases/snapshots.py"
WHOLE = ["protocol2.pickle", "protocol3.pickle", "protocol4.pickle", "protocol5.pickle", "pools.pickle", "host.pickle",
         "fourth.pickle", "no_free_completed.pickle", "no_free_requested.pickle", "high_addresses.pickle", "high.json",
         "snap.json", "snap.pickle.gz"]
NAMED = {"protocol0.pickle": "a pickle of protocol 0 or 1", "protocol1.pickle": "a pickle of protocol 0 or 1",
         "snap.db": "an SQLite database", "segments_only.pickle": "lists segments alone",
         "without_traces.pickle": "a snapshot without a recording"}


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    folder = tmp_path_factory.mktemp("snapshots")
    subprocess.run([sys.executable, MAKER, folder], check=True)
    return folder


@pytest.fixture
def imported(sentinel, made, tmp_path):
    """imported("snap.json"): the outcome, and the path of the profile."""
    def run(name):
        profile = tmp_path / "p.sentinel"
        return sentinel("import", made / name, "--format", "pytorch-snapshot", "-o", profile), profile
    return run


@pytest.mark.parametrize("name", WHOLE)
def test_read_whole(imported, sentinel, made, name):
    outcome, profile = imported(name)
    truth = json.loads((made / "truth.json").read_text())
    assert (outcome.status, outcome.err) == (0, "")
    assert f"{truth['tensors']} tensors" in outcome.out
    summary = json.loads(sentinel("report", profile, "summary", "--format", "json").out)
    assert 0 <= summary["peak_live_bytes"] - truth["peak"] < truth["tensors"] * 4096  # whole pages are told


@pytest.mark.parametrize("name", NAMED)
def test_named_for_what_it_is(imported, name):
    outcome, profile = imported(name)
    assert outcome.status == 1 and NAMED[name] in outcome.err, outcome.err
    assert name in outcome.err and not profile.exists()


def test_a_recording_that_overflowed(imported):
    outcome, _ = imported("late.pickle")
    assert outcome.status == 0 and "98 tensors" in outcome.out
    assert outcome.err.count("the recording overflowed") == outcome.err.count("\n") == 1


def test_without_times_no_ratio_is_told(imported, sentinel):
    outcome, profile = imported("no_times.pickle")
    assert outcome.status == 0 and "156 tensors" in outcome.out
    assert outcome.err.count("no event tells its time") == outcome.err.count("\n") == 1
    assert "no event tells its time" in " ".join(sentinel("report", profile).out.split())
    assert "sentinel report" in outcome.out
    on = ("--machine", "a100-g10", "--fast", "60%", "--policy", "sentinel,g10")
    text = sentinel("compare", profile, *on)
    assert text.status == 0 and "no ratio is told" in text.out, text.err
    rows = [row for row in text.out.splitlines() if row.startswith(("sentinel ", "g10 "))]
    assert len(rows) == 2 and all(row.split()[3:6] == ["-", "-", "-"] for row in rows), text.out
    for result in json.loads(sentinel("compare", profile, *on, "--json").out)["results"]:
        assert result["normalized_throughput"] is None
    header, *rows = sentinel("compare", profile, *on, "--csv").out.splitlines()
    column = header.split(",").index("normalized_throughput")
    assert rows and all(row.split(",")[column] == "" for row in rows)
    target = sentinel("simulate", profile, "--machine", "a100-g10", "--target", "0.9")
    assert target.status == 1 and "tells no op's time" in target.err


def test_frees_that_were_not_recorded(imported, made):
    snapshot = json.loads((made / "snap.json").read_text())
    freed = 0

    def keep(event):
        nonlocal freed
        freed += event["action"] == "free_requested"
        return not event["action"].startswith("free_") or freed % 10 != 3
    snapshot["device_traces"][0] = [event for event in snapshot["device_traces"][0] if keep(event)]
    (made / "lost.json").write_text(json.dumps(snapshot))
    outcome, _ = imported("lost.json")
    assert outcome.status == 0 and "156 tensors" in outcome.out
    assert "the frees of 15 tensors were not recorded" in outcome.err and outcome.err.count("\n") == 1


def test_a_packed_snapshot_has_the_limits_of_a_plain_one(imported, made):
    (made / "bomb.gz").write_bytes(gzip.compress(b"[" + b" " * (200 << 20) + b"]"))
    outcome, _ = imported("bomb.gz")
    assert outcome.status == 1 and "times its length" in outcome.err, outcome.err
    (made / "cut.gz").write_bytes((made / "snap.pickle.gz").read_bytes()[:2000])
    outcome, _ = imported("cut.gz")
    assert outcome.status == 1 and "truncated" in outcome.err
    (made / "twice.gz").write_bytes(gzip.compress((made / "snap.pickle.gz").read_bytes()))
    outcome, _ = imported("twice.gz")
    assert outcome.status == 1 and "packed by gzip twice" in outcome.err
