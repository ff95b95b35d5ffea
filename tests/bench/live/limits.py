"""The limit of a budget: what a step takes at least by `sentinel simulate`, on this machine as it was measured."""

import json
import subprocess


class Step:
    """One recorded step: `peak` is its live tensors', in bytes."""

    def __init__(self, sentinel, profile):
        self.sentinel, self.profile = sentinel, profile
        self._found = {}
        self.peak = self._simulated("100%")["trace"]["peak_bytes"]

    def _simulated(self, fast):
        done = subprocess.run([self.sentinel, "simulate", self.profile, "--machine", "local", "--policy", "sentinel", "--fast",
                               fast, "--json"], check=True, capture_output=True, text=True)
        return json.loads(done.stdout)

    def _bounds(self, budget):
        """Of a step that takes 1 unlimited: with moves alone, and where tensors may also be made again."""
        if budget not in self._found:
            found = self._simulated(str(budget))["results"][0]
            self._found[budget] = [found[key] / found["ideal_us"] for key in ("swap_lower_bound_us", "lower_bound_us")]
        return self._found[budget]

    def bound_ms(self, budget, unlimited_ms, recompute):
        return unlimited_ms * self._bounds(int(budget))[recompute]
