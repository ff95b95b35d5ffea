"""The table and the picture of tests/bench/live, of what a comparison leaves behind; the comparison itself takes
an hour."""
import json
import pathlib
import sys

import pytest

LIVE = pathlib.Path(__file__).resolve().parent.parent / "bench" / "live"
sys.path.insert(0, str(LIVE))
import contenders  # noqa: E402
import live  # noqa: E402

MB = 10 ** 6


class Step:
    peak = 100 * MB

    @staticmethod
    def bound_ms(fast_bytes, unlimited_ms, recompute):
        return unlimited_ms + 90 * MB / fast_bytes - (1 if recompute else 0)


def record(kind, ms, moved=0, system_s=0.2, stolen_s=0.0):
    """Of a training of six steps."""
    steps = [{"ms": ms, "user_s": ms / 1000, "system_s": system_s, "stolen_s": stolen_s,
              "loss": 1 / (number + 1)} for number in range(6)]
    run = {"steps": steps, "peak_rss_kb": 1024, "swapped": [0, 0]}
    if kind in ("sentinel", "toll"):
        each = {"ms": ms, "stall_ms": 15 if moved else 0, "phase": "steady", "promoted_bytes": moved,
                "demoted_bytes": moved, "demand_faults": 0}
        run["summary"] = {"steps": [dict(each) for _ in steps], "predicted_ms": ms - 10,
                          "planned_promoted_bytes": moved, "planned_demoted_bytes": moved // 2,
                          "predicted_in_bytes": moved, "predicted_out_bytes": moved * 3 // 2,
                          "fast_limit_bytes": 30 * MB}
    return run


@pytest.fixture(scope="module")
def result():
    unlimited = [record("sentinel", 100)]
    rows = []
    for one in contenders.contenders([20]):
        if one.kind == "offload":
            records = [{"failure": "killed: out of memory"}]
        else:
            records = [record(one.kind, 100 if one.share is None else 125, 500 * MB if one.limited else 0,
                              *((0.2, 0) if one.share is None else (0.3, 0.02 * live.os.cpu_count())))]
        rows.append(live.row_of(one, records, record("plain", 90), Step, unlimited))
    return {"peak_gb": 0.1, "process_gb": 0.01, "rows": rows}


def test_table(result):
    row = next(row for row in result["rows"] if row["label"] == "Sentinel 20 %")
    assert row["of_plan"] == pytest.approx(4 / 3) and row["of_predicted"] == pytest.approx(4 / 5)
    assert row["system_s_per_gb"] == pytest.approx(0.1)
    assert row["waited_ms"] == 15 and row["slowed"] == pytest.approx(0.1) and row["arithmetic"] == pytest.approx(0.25)
    assert row["stolen"] == pytest.approx(0.16) and row["predicted_ms"] == 125 and row["bound_ms"] == 103.5 and row["same_losses"]
    whole = next(row for row in result["rows"] if row["label"] == "Sentinel in the limit, 20 %")
    assert whole["bound_ms"] == 102  # of what it took, not of the share
    lines = live.table("model", result).splitlines()
    cells = ("+10 %", "+25 %", "1.33", "0.100", "16 %")
    assert any(line.split()[:1] == ["Sentinel"] and all(cell in line for cell in cells) for line in lines)
    assert any("killed: out of memory" in line for line in lines)


def test_picture(result, tmp_path):
    pytest.importorskip("matplotlib", reason="python3-matplotlib is not installed")
    from picture import draw
    path = tmp_path / "live.svg"
    draw({"model": json.loads(json.dumps(result))}, path)
    text = path.read_text()
    assert all(row["label"] in text or row["ms"] is None for row in result["rows"])
