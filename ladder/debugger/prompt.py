"""The debugger's commands, typed at a prompt or read from a file."""

from __future__ import annotations

import difflib
import math
import os
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from rich.console import Console, RenderableType
from rich.markup import escape
from rich.text import Text

from ladder.debugger import tables
from ladder.debugger.fragments import matrices
from ladder.debugger.session import Session, Stop
from ladder.debugger.values import NoValue

PROMPT = "(ladder) "
_REASONS = {
    "step": "", "launch": "the kernel is about to begin", "reached": "", "end": "the launch has ended",
    "interrupted": "interrupted",
}  # fmt: skip
_SHORT = {
    "b": "break", "c": "continue", "s": "step", "n": "next", "si": "stepi", "fin": "finish", "p": "print",
    "l": "list", "i": "info", "q": "quit", "h": "help", "bt": "info stack", "where": "info stack",
    "rc": "rcontinue", "bi": "backi", "d": "delete", "x": "shared", "exit": "quit",
}  # fmt: skip


class Prompt:
    """Carries commands out on a session, and shows what they find."""

    def __init__(self, session: Session, console: Console) -> None:
        self._session = session
        self._console = console
        self._listed = 0
        self._is_over = False

    def run(self, lines: Iterable[str], *, echoes: bool = False) -> None:
        """Carries out the lines until one of them is ``quit``; ``echoes`` shows them behind a prompt."""
        last = ""
        for line in lines:
            if echoes and line.strip():
                self._console.print(Text(PROMPT + line.strip(), style="green"))
            line = line.partition("#")[0].strip() or ("" if echoes else last)
            last = line
            if line:
                self.do(line)
            if self._is_over:
                return

    def do(self, line: str) -> None:
        """Carries out one command."""
        word, _, rest = line.partition(" ")
        word, _, more = _SHORT.get(word, word).partition(" ")
        command = self._commands().get(word)
        if command is None:
            near = difflib.get_close_matches(word, self._commands(), 1)
            self._say(f"there is no command {word}; " + (f"did you mean {near[0]}?" if near else "see help"))
            return
        try:
            command(f"{more} {rest}".strip())
        except NoValue as error:
            self._console.print(Text(error.message, style="yellow"))
        except KeyboardInterrupt:
            self._say("interrupted")

    def _commands(self) -> Mapping[str, Callable[[str], None]]:
        return {
            name.removeprefix("_do_"): getattr(self, name) for name in dir(self) if name.startswith("_do_")
        }

    def _say(self, text: str) -> None:
        self._console.print(Text(text), soft_wrap=True)

    def _show(self, what: RenderableType) -> None:
        self._console.print(what)

    def _show_lines(self, lines: Iterable[Text]) -> None:
        for line in lines:
            self._console.print(line, soft_wrap=True)

    def begin(self) -> None:
        """Says what is debugged, and where it has stopped."""
        self._show_build()
        self.show_stop()

    def _show_build(self) -> None:
        """Labels the numbers of instructions of a build that is not the usual one."""
        if self._session.stop.has_variables:
            self._console.print(Text(tables.UNOPTIMISED, style="yellow"), soft_wrap=True)

    def show_stop(self, stop: Stop | None = None) -> None:
        """Says where the session has stopped, and why."""
        stop = stop or self._session.stop
        self._listed = 0
        self._show_lines(tables.stop_lines(stop, self._reason(stop)))

    def _reason(self, stop: Stop) -> str:
        if stop.why == "exit":
            return "the program has ended" + (f": {stop.message}" if stop.message else "")
        if stop.why == "breakpoint":
            return f"breakpoint {', '.join(map(str, stop.hit))}"
        if stop.why == "fault":
            return f"fault: {stop.fault}"
        if stop.why == "finding":
            found = self._session.findings()
            return (
                f"the sanitizer has found ({found[-1].kind}): {found[-1].message}" if found else "a finding"
            )
        if stop.why == "watch":
            watch, by = self._session.watches[stop.watched], stop.by
            block = ",".join(map(str, by["block"]))
            place = f"{os.path.basename(by['file'])}:{by['line']}"
            who = f"block ({block}) warp {by['warp']}"
            return f"watch {watch.number}: {watch.text} was changed by {who} at {place}"
        return _REASONS.get(stop.why, stop.why)

    # --- going on

    def _repeat(self, text: str, go: Callable[[], Stop]) -> None:
        for _ in range(_count(text)):
            stop = go()
            if stop.why not in ("step", "reached"):
                break
        self.show_stop()

    def _do_step(self, rest: str) -> None:
        """step [N]: to the next line of this thread, into functions."""
        self._repeat(rest, lambda: self._session.go("into"))

    def _do_next(self, rest: str) -> None:
        """next [N]: to the next line of this thread, over the functions that it calls."""
        self._repeat(rest, lambda: self._session.go("over"))

    def _do_stepi(self, rest: str) -> None:
        """stepi [N]: one PTX instruction of this thread's warp."""
        self._repeat(rest, lambda: self._session.go("instruction"))
        self._show_instruction()

    def _do_finish(self, rest: str) -> None:
        """finish: to behind the end of this function."""
        self._repeat(rest, lambda: self._session.go("out"))

    def _do_barrier(self, rest: str) -> None:
        """barrier [N]: to the next instruction of this thread that synchronises warps."""
        self._repeat(rest, lambda: self._session.go("barrier"))
        self._show_instruction()

    def _do_continue(self, rest: str) -> None:
        """continue: to a breakpoint, a changed watch, a finding of the sanitizer, a fault or the end."""
        self._session.go()
        self.show_stop()

    def _do_back(self, rest: str) -> None:
        """back [N]: to the line before this one of this thread, over the functions that it called."""
        self._repeat(rest, lambda: self._session.back("over"))

    def _do_backi(self, rest: str) -> None:
        """backi [N]: back by one instruction of this thread's warp."""
        self._repeat(rest, lambda: self._session.back("instruction"))
        self._show_instruction()

    def _do_rcontinue(self, rest: str) -> None:
        """rcontinue: back to the last breakpoint, changed watch or finding before this moment."""
        self._session.back("none")
        self.show_stop()

    def _do_goto(self, rest: str) -> None:
        """goto NUMBER [LAUNCH]: to the moment before the instruction with this number, forward or back."""
        words = rest.split()
        numbers = [int(word) for word in (word.replace(",", "") for word in words) if word.isdecimal()]
        if not words or len(numbers) < len(words) or 0 in numbers:
            raise NoValue("goto takes the number of an instruction, from 1 on; each stop shows it")
        launch = numbers[1] if len(numbers) > 1 else self._session.stop.moment[0]
        self._session.go_to((launch, numbers[0]))
        self.show_stop()

    # --- breakpoints and watches

    def _do_break(self, rest: str) -> None:
        """break [FILE:]LINE|FUNCTION [if CONDITION]: stops there; the condition may name variables,
        threadIdx, blockIdx, warp, lane."""
        place, _, condition = re.sub(r"\s+if\b", " if", rest).partition(" if")
        place = place.strip()
        if match := re.fullmatch(r"(?:(.+):)?(\d+)", place):
            asked = int(match[2])
            file = match[1] or (self._session.stop.at or {}).get("file", "")
            made = self._session.add_breakpoint(file, asked, condition.strip())
            moved = f" (line {asked} has no code)" if made.line != asked else ""
        elif place:
            made = self._session.add_breakpoint_in(place, condition.strip())
            moved = ""
        else:
            raise NoValue("break takes a line or a function: break 76, break kernel.cu:76 if lane == 3")
        also = f" if {made.condition}" if made.condition else ""
        self._say(f"breakpoint {made.number} at {os.path.basename(made.file)}:{made.line}{also}{moved}")

    def _do_condition(self, rest: str) -> None:
        """condition NUMBER [CONDITION]: gives a breakpoint another condition, or none."""
        number, _, condition = rest.partition(" ")
        if not number.isdecimal():
            raise NoValue("condition takes the number of a breakpoint: condition 1 lane == 3")
        self._session.set_condition(int(number), condition.strip())

    def _do_watch(self, rest: str) -> None:
        """watch EXPRESSION: stops when this memory changes, in shared or global memory: watch s_row[3]"""
        if not rest:
            raise NoValue("watch takes an expression: watch s_row[3]")
        watch = self._session.add_watch(rest)
        space = "shared memory" if watch.is_shared else "global memory"
        self._say(f"watch {watch.number}: {watch.text}, {watch.bytes} bytes in {space}")

    def _do_delete(self, rest: str) -> None:
        """delete NUMBER...: deletes breakpoints and watches."""
        words = rest.split()
        if not words or not all(word.isdecimal() for word in words):
            raise NoValue("delete takes numbers of breakpoints and watches; info breakpoints shows them")
        for word in words:
            self._session.delete(int(word))

    # --- looking

    def _do_print(self, rest: str) -> None:
        """print EXPRESSION: its value in each lane: print s, print q_row[x], print p.scale"""
        if not rest:
            raise NoValue("print takes an expression: print q_row[3]")
        found = self._evaluate(rest)
        shown = {tables.text_of(value) for value in found["values"] if value is not None}
        if len(shown) == 1:
            kind = f" ({found['type']})" if found["type"] else ""
            self._say(f"{rest} = {tables.text_of(found['values'][self._session.focus[2]])}{kind}")
        else:
            self._show(tables.by_lane([{"name": rest, **found}], self._session.focus[2]))

    def _do_tile(self, rest: str) -> None:
        """tile EXPRESSION [a|b|c] [f16|bf16] [COLUMNS]: a tile of the tile library, or an array of fragments
        of mma.m16n8k16, as a matrix with the lanes that hold it; of all columns, or the first of them."""
        words = rest.split()
        fragment = element = ""
        columns = None
        while len(words) > 1 and (words[-1] in ("a", "b", "c", "f16", "bf16") or words[-1].isdecimal()):
            word = words.pop()
            if word.isdecimal():
                columns = int(word)
            elif len(word) == 1:
                fragment = word
            else:
                element = word
        if not words or columns == 0:
            raise NoValue("tile takes an expression: tile s, tile s_rmem c, tile s 8")
        text = " ".join(words)
        found = self._evaluate(text)
        for matrix in matrices(text, found["type"], found["values"], fragment, element):
            self._show(tables.matrix_table(matrix, self._console.width, columns))

    def _evaluate(self, text: str) -> dict[str, Any]:
        session = self._session
        return session.ask("evaluate", text=text, focus=session.focus, level=session.level)

    def _do_shared(self, rest: str) -> None:
        """shared [OFFSET|EXPRESSION] [ROWS] [f32|f16|bf16|u32|s32|hex]: shared memory by bank."""
        words = rest.split()
        kind = next((word for word in words if word in tables.FORMATS), "f32")
        words = [word for word in words if word not in tables.FORMATS]
        begin, session = 0, self._session
        data = bytes.fromhex(session.ask("shared", focus=session.focus)["hex"])
        if words and words[0].isdecimal():
            begin = int(words[0])
        elif words:
            found = session.ask("address", text=words[0] + "[0]", focus=session.focus, level=session.level)
            if not found["is_shared"]:
                raise NoValue(f"{words[0]} is not in shared memory")
            begin = found["address"]
        rows = _count(words[1]) if len(words) > 1 else 4
        if begin >= len(data):
            raise NoValue(f"the block has {len(data):,} bytes of shared memory")
        self._show(tables.banks_table(data, begin, rows, kind, self._console.width))

    def _do_info(self, rest: str) -> None:
        """info locals|stack|warps|mbarriers|breakpoints|findings|launch: shows them."""
        session, word = self._session, rest.strip()
        focus = session.focus
        if word == "locals":
            found = session.ask("variables", focus=focus, level=session.level)
            if not found["has_variables"]:
                raise NoValue("this build has lines but no variables; leave out --lines-only")
            self._show(tables.variables_tables(found["variables"], focus[2]))
        elif word == "stack":
            self._show(tables.stack_table(session.ask("stack", focus=focus)["frames"], session.level))
        elif word in ("warps", "lanes"):
            self._show(tables.warps_table(session.ask("warps")["warps"], focus, self._console.width))
        elif word == "mbarriers":
            self._show(tables.mbarriers_table(session.ask("mbarriers", focus=focus)["mbarriers"]))
        elif word == "findings":
            found_all = session.findings()
            for one in found_all:
                self._say(f"{one.kind}: {one.message}")
            if not found_all:
                self._say("the sanitizer has found nothing so far (it is on with --check)")
        elif word == "launch":
            launch = session.stop.launch
            sizes = ", ".join(
                f"{name} {'x'.join(map(str, launch[name]))}" for name in ("grid", "block", "cluster")
            )
            self._say(f"launch {launch['number']}: {launch['kernel']}; {sizes}")
            self._show_build()
        elif word in ("breakpoints", "break", "watches"):
            for point in session.breakpoints:
                condition = f" if {point.condition}" if point.condition else ""
                self._say(
                    f"{point.number}  breakpoint at {os.path.basename(point.file)}:{point.line}{condition}"
                )
            for watch in session.watches:
                self._say(f"{watch.number}  watch {watch.text}")
            if not session.breakpoints and not session.watches:
                self._say("there are none")
        else:
            raise NoValue((self._do_info.__doc__ or "").strip())

    def _do_list(self, rest: str) -> None:
        """list [LINE]: the source around the thread's line, or that one; again shows what follows."""
        at = self._place()
        file, line = at["file"], at["line"]
        middle = _count(rest) if rest else (self._listed + 11 if self._listed else line)
        lines = tables.source_lines(file)
        if middle > len(lines):
            end = f"ends at line {len(lines)}" if lines else "cannot be read"
            raise NoValue(f"{os.path.basename(file)} {end}")
        self._listed = middle
        marked = [one.line for one in self._session.breakpoints if one.file == file]
        table = tables.listing(file, middle, marked)
        self._show(table)

    def _place(self) -> dict[str, Any]:
        session = self._session
        frames = session.ask("stack", focus=session.focus)["frames"]
        own = [frame for frame in frames if frame["level"] == session.level]
        if not own:
            raise NoValue("the lane has exited")
        return dict(own[0])

    def _do_instruction(self, rest: str) -> None:
        """instruction: the PTX around the next instruction."""
        at = self._session.ask("position", focus=self._session.focus)["instruction"]
        found = self._session.ask("instructions", begin=at - 4, end=at + 5)["instructions"]
        for one in found:
            arrow = ">" if one["instruction"] == at else " "
            place = f"{os.path.basename(one['file'])}:{one['line']}"
            self._say(f"{arrow} {one['instruction']:>6}  {place:<20} {one['ptx']}")

    def _show_instruction(self) -> None:
        if at := self._session.stop.at:
            self._say(f"       next: {at['ptx']}")

    # --- the thread that is looked at

    def _do_lane(self, rest: str) -> None:
        """lane N: looks at this lane, and steps it."""
        self._focus_on((*self._session.focus[:2], _number(rest, 31)))

    def _do_warp(self, rest: str) -> None:
        """warp N: looks at this warp of the block, and steps it."""
        self._focus_on((self._session.focus[0], _number(rest, 31), self._session.focus[2]))

    def _do_block(self, rest: str) -> None:
        """block N [WARP [LANE]]: steps this block's thread (its number, or x,y,z); continue with step."""
        words = rest.replace("(", "").replace(")", "").split()
        parts = words[0].split(",") if words else []
        if not 1 <= len(parts) <= 3 or not all(part.isdecimal() for part in parts):
            raise NoValue("block takes a number, or x,y,z")
        grid = self._session.stop.launch["grid"]
        index = [int(part) for part in parts]
        if len(index) == 1:
            number, is_there = index[0], index[0] < grid[0] * grid[1] * grid[2]
        else:
            x, y, z = [*index, 0][:3]
            number = x + grid[0] * (y + grid[1] * z)
            is_there = x < grid[0] and y < grid[1] and z < grid[2]
        if not is_there:
            raise NoValue(f"the grid has no block {words[0]}; it is {'x'.join(map(str, grid))}")
        warps = -(-math.prod(self._session.stop.launch["block"]) // 32)
        warp = _number(words[1], warps - 1) if len(words) > 1 else 0
        lane = _number(words[2], 31) if len(words) > 2 else 0
        self._session.focus = (number, warp, lane)
        try:
            self._focus_on(self._session.focus)
        except NoValue:
            self._say(f"block {number} does not run now; step goes to where it does")

    def _focus_on(self, focus: tuple[int, int, int]) -> None:
        at = self._session.ask("position", focus=focus)
        self._session.focus, self._session.level = focus, 0
        self._listed = 0
        if not at.get("lanes"):
            raise NoValue("this lane has exited")
        stop = self._session.stop
        self._show_lines(tables.stop_lines(Stop("step", stop.launch, stop.number, at), ""))

    def _do_up(self, rest: str) -> None:
        """up: looks at the caller's variables."""
        self._change_level(_count(rest))

    def _do_down(self, rest: str) -> None:
        """down: looks at the callee's variables again."""
        self._change_level(-_count(rest))

    def _change_level(self, by: int) -> None:
        session = self._session
        frames = session.ask("stack", focus=session.focus)["frames"]
        session.level = min(max(session.level + by, 0), max(frame["level"] for frame in frames))
        self._show(tables.stack_table(frames, session.level))

    # --- the rest

    def _do_help(self, rest: str) -> None:
        """help: the commands."""
        for command in self._commands().values():
            text = " ".join((command.__doc__ or "").split())
            head, _, what = text.partition(": ")
            self._console.print(f"[bold]{escape(head)}[/]: {escape(what)}", highlight=False)
        self._say("Short: " + ", ".join(f"{short} = {word}" for short, word in _SHORT.items()))

    def _do_quit(self, rest: str) -> None:
        """quit: ends the session."""
        self._is_over = True


def _count(text: str) -> int:
    if text and not text.isdecimal():
        raise NoValue(f"{text} is no number")
    return int(text or 1)


def _number(text: str, most: int) -> int:
    if not text.isdecimal() or int(text) > most:
        raise NoValue(f"{text or 'nothing'} is no number from 0 to {most}")
    return int(text)
