"""Debian's package is built with what the build needs; tools/package/check.sh tries it."""
import pathlib
import re

TOOLS = pathlib.Path(__file__).parents[2] / "tools"


def test_the_package_names_what_the_build_needs():
    needed = {line for line in (TOOLS / "packages.txt").read_text().split("\n") if re.search("-dev$", line)}
    named = re.search("(?s)Build-Depends:(.*?)\n\\S", (TOOLS / "package/debian/control").read_text())[1]
    assert needed <= set(re.split(r"[,\s]+", named)), "in packages.txt and not in control"
