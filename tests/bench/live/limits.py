"""The limit of a budget: what a step takes at least by `sentinel simulate`, on this machine as it was measured."""

import functools
import json
import subprocess


class Step:
    """One recorded step: `peak` is its live tensors', in bytes."""

    def __init__(self, sentinel, profile):
        self.sentinel, self.profile = sentinel, profile
        self.peak = self._simulated("100%")["trace"]["peak_bytes"]

    def _simulated(self, fast):
        done = subprocess.run([self.sentinel, "simulate", self.profile, "--machine", "local", "--policy", "sentinel", "--fast",
                               fast, "--json"], check=True, capture_output=True, text=True)
        return json.loads(done.stdout)

    @functools.lru_cache
    def _bounds(self, budget):
        """Of a step that takes 1 unlimited: with moves alone, and where tensors may also be made again."""
        found = self._simulated(str(budget))["results"][0]
        return found["swap_lower_bound_us"] / found["ideal_us"], found["lower_bound_us"] / found["ideal_us"]

    def bound_ms(self, budget, unlimited_ms, recompute):
        return unlimited_ms * self._bounds(int(budget))[recompute]
