# SPDX-License-Identifier: Apache-2.0
"""Kernels of a cubin as nvdisasm -c prints them: instructions, and which of them a loop runs. Standard library only."""

import collections
import dataclasses
import re

FUNCTION = re.compile(r"^\.text\.(\S+):$")
LABEL = re.compile(r"^(\.L_x_\d+):$")
INSTRUCTION = re.compile(r"^\s+/\*[0-9a-f]{4,}\*/\s+(?:@!?U?P\w+\s+)?([A-Z][A-Z0-9_.]*)(.*)")
TARGET = re.compile(r"`?\(?(\.L_x_\d+)\)")
REGISTERS = re.compile(r"Compiling entry function '(\S+)' for .*?Used (\d+) registers", re.DOTALL)


@dataclasses.dataclass
class Loop:
    """Instructions first .. last; `own` without those of loops inside it, by name and width, such as LDS.128."""
    first: int
    last: int
    own: collections.Counter
    is_innermost: bool = True
    is_whole: bool = False  # a function's instructions, loops and all

    def count(self, *names):
        return sum(number for name, number in self.own.items() if name.split(".")[0] in names)

    def instructions(self):
        return sum(self.own.values())


@dataclasses.dataclass
class Function:
    names: list  # of all instructions
    loops: list
    top: collections.Counter  # outside of all loops
    jumps: list  # (first instruction behind a branch that leads on, that which it leads to)

    def main_loop(self):
        """That with most multiply-adds of its own, or None."""
        best = max(self.loops, key=lambda loop: loop.count("FFMA", "HMMA"), default=None)
        return best if best is not None and best.count("FFMA", "HMMA") > 0 else None

    def whole(self):
        """All of it, as if it were one loop, but for what stands behind its end: divisions and roots of unusual
        numbers, which it calls."""
        ends = [i for i, name in enumerate(self.names) if name == "EXIT"]
        names = self.names[:ends[-1] + 1 if ends else None]
        return Loop(0, len(names) - 1, collections.Counter(names), is_whole=True)

    def around(self, loop):
        """Loops that hold a loop, the widest first."""
        return [each for each in self.loops if each is not loop and each.first <= loop.first and loop.last <= each.last]

    def skipped(self, loop, is_meant, all_of_them=False):
        """Instructions of a loop, but for those of loops inside it, that a branch may skip together: the most, by name
        and width, of which is_meant(Counter) is true; or none. Or all of these that have no instruction in common."""
        meant = []
        inside = [each for each in self.loops
                  if each is not loop and loop.first <= each.first and each.last <= loop.last and not loop.is_whole]
        for first, last in self.jumps:
            if not loop.first <= first <= last <= loop.last + 1:
                continue
            found = collections.Counter(self.names[i] for i in range(first, last)
                                        if not any(each.first <= i <= each.last for each in inside))
            if is_meant(found):
                meant.append((first, last, found))
        best = collections.Counter()
        taken = []
        for first, last, found in sorted(meant, key=lambda each: -each[2].total())[:None if all_of_them else 1]:
            if all(last <= begin or end <= first for begin, end in taken):
                taken.append((first, last))
                best += found
        return best


def name_of(opcode):
    """LDS.128 of LDS.U.128; without what does not matter here."""
    parts = opcode.split(".")
    if parts[0] == "F2I":
        return "F2I.S64" if "S64" in parts else "F2I"
    return f"{parts[0]}.{parts[-1]}" if parts[-1] in ("64", "128") else parts[0]


def function_of(lines):
    names, labels, branches = [], {}, []
    for line in lines:
        label = LABEL.match(line)
        if label:
            labels[label.group(1)] = len(names)
            continue
        found = INSTRUCTION.match(line)
        if not found:
            continue
        target = TARGET.search(found.group(2)) if found.group(1).split(".")[0] == "BRA" else None
        if target:
            branches.append((len(names), target.group(1)))
        names.append(name_of(found.group(1)))
    ends, jumps = {}, []
    for place, label in branches:  # one that leads back ends a loop; of several to one place the last
        first = labels.get(label, place + 1)
        # The branch to itself behind a kernel's end is no loop.
        if first < place:
            ends[first] = max(place, ends.get(first, place))
        elif first > place + 1:
            jumps.append((place + 1, first))
    spans = sorted(ends.items(), key=lambda span: (span[0], -span[1]))
    owner = [None] * len(names)  # the smallest loop that holds an instruction
    for number, (first, last) in sorted(enumerate(spans), key=lambda each: each[1][0] - each[1][1]):
        owner[first:last + 1] = [number] * (last + 1 - first)
    counts = [collections.Counter() for _ in spans]
    top = collections.Counter()
    for name, number in zip(names, owner):
        (top if number is None else counts[number])[name] += 1
    loops = [Loop(first, last, own) for (first, last), own in zip(spans, counts)]
    for loop in loops:
        loop.is_innermost = not any(each is not loop and loop.first <= each.first and each.last <= loop.last
                                    for each in loops)
    return Function(names, loops, top, jumps)


def functions(text):
    """{mangled name: Function}"""
    bodies, body = {}, None
    for line in text.splitlines():
        found = FUNCTION.match(line)
        if found:
            body = bodies.setdefault(found.group(1), [])
        elif line.lstrip().startswith(".section"):
            body = None
        elif body is not None:
            body.append(line)
    return {name: function_of(lines) for name, lines in bodies.items()}


def registers(text):
    """{mangled name: registers a thread}, of what ptxas -v says."""
    return {name: int(count) for name, count in REGISTERS.findall(text)}
