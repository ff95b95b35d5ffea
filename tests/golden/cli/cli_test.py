"""The command as its users meet it: exit status, streams, signals, and the help screens.

    /usr/bin/python3 tests/golden/cli/cli_test.py BUILD_DIR
    SENTINEL_ACCEPT=1 /usr/bin/python3 tests/golden/cli/cli_test.py BUILD_DIR    accepts the screens
"""
import sys
import unittest

from bad_input_cases import BadInput  # noqa: F401
from file_cases import Inputs, Outputs, Cache  # noqa: F401
from help_cases import Help, Reference  # noqa: F401
from host_cases import Machine  # noqa: F401
from hostile_cases import Hostile  # noqa: F401
from planning_cases import Reports, Simulations, Comparisons, Sweeps  # noqa: F401
from top_cases import Screen, Top  # noqa: F401
from training_cases import Fit, WrongUsage, Commands  # noqa: F401

if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    del sys.argv[1]  # case.py has read it
    unittest.main()
