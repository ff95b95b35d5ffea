"""Where a kernel image asks a static key, and what stands there while the key is off."""

import collections
import pathlib
import re
import struct
import subprocess

Site = collections.namedtuple("Site", "function instruction bytes")


class Image:
    """A vmlinux of x86-64 with its symbols."""

    def __init__(self, path):
        self.path, self.data = path, pathlib.Path(path).read_bytes()
        names = subprocess.run(["nm", path], capture_output=True, text=True, check=True).stdout
        self.symbols = {name: int(address, 16) for address, _, name in
                        (line.split() for line in names.splitlines() if len(line.split()) == 3)}

    def at(self, start, end):
        """The bytes of [start, end), by the program headers."""
        offset, size, count = (struct.unpack_from(code, self.data, place)[0]
                               for code, place in (("<Q", 32), ("<H", 54), ("<H", 56)))
        for header in range(offset, offset + size * count, size):
            kind, _, file, address, _, length = struct.unpack_from("<IIQQQQ", self.data, header)
            if kind == 1 and address <= start and end <= address + length:
                return self.data[file + start - address:file + end - address]
        raise ValueError(f"{start:#x} is not in {self.path}")

    def sites_of(self, key):
        """Each place of the code where `key` is asked, from __jump_table: three numbers an entry, of
        32, 32 and 64 bits, each relative to itself: the code, its target, the key (low bits: flags)."""
        start, end = self.symbols["__start___jump_table"], self.symbols["__stop___jump_table"]
        table = self.at(start, end)
        for offset in range(0, len(table), 16):
            code, _, which = struct.unpack_from("<iiq", table, offset)
            if start + offset + 8 + (which & ~3) == self.symbols[key]:
                yield self.site(start + offset + code)

    def site(self, address):
        """What objdump finds there; a function that was inlined carries its caller's name."""
        text = subprocess.run(["objdump", "-d", f"--start-address={address:#x}",
                               f"--stop-address={address + 5:#x}", self.path],
                              capture_output=True, text=True, check=True).stdout
        function = re.search(r"^[0-9a-f]+ <([^>+]+)", text, re.M).group(1)
        code, instruction = re.search(r"^\s*[0-9a-f]+:\t([0-9a-f ]+?)\s*\t(.*)$", text, re.M).groups()
        return Site(function, instruction.strip(), len(code.split()))
