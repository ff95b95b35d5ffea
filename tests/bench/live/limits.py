"""The physical limit of a budget: what a step takes when all that moves does so at the disk's full bandwidth,
perfectly hidden behind the arithmetic, forward and backward apart."""

import gzip
import json


class Step:
    """One step as `sentinel export --format tensor-trace` writes it: op times in ms, live bytes by op."""

    def __init__(self, path):
        with gzip.open(path, "rt") as lines:
            next(lines)  # the header
            rows = [json.loads(line) for line in lines]
        self.bytes = {row["t"]: row["bytes"] for row in rows if "t" in row}
        self.persistent = {row["t"] for row in rows if row.get("kind") == "global"}
        self.ops = [row for row in rows if "k" in row]
        self.live = self._live()

    def _live(self):
        first, last = {}, {}
        for k, op in enumerate(self.ops):
            for tensor in {*op["in"], *op["out"]} - self.persistent:
                first.setdefault(tensor, k)
                last[tensor] = k
        change = [0] * (len(self.ops) + 1)
        for tensor, k in first.items():
            change[k] += self.bytes[tensor]
            change[last[tensor] + 1] -= self.bytes[tensor]
        now, live = sum(self.bytes[t] for t in self.persistent), []
        for delta in change[:-1]:
            now += delta
            live.append(now)
        return live

    @property
    def peak(self):
        return max(self.live)

    def must_move(self, budget):
        """Bytes that cannot be in memory at the peak: they go out before it and come back after it."""
        return max(0, self.peak - budget)

    def limit_ms(self, budget, unlimited_ms, write_bw, read_bw):
        """`unlimited_ms`: of the step, shared out by the ops' times before and after the peak."""
        whole = sum(op["us"] for op in self.ops) or 1
        peak_at = self.live.index(self.peak)
        before = unlimited_ms * sum(op["us"] for op in self.ops[:peak_at + 1]) / whole
        moved = self.must_move(budget)
        return max(before, 1e3 * moved / write_bw) + max(unlimited_ms - before, 1e3 * moved / read_bw)
