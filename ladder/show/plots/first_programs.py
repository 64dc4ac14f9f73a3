"""Drawings of lessons, and of each exercise that is a program: data, threads, and what goes where.

They show what a task is about and never how its gap is filled.
"""

from __future__ import annotations

from collections.abc import Callable

from ladder.errors import LadderError
from ladder.show.plots.figure import BLUE, GREEN, GREY, LIGHT, ORANGE, PURPLE, SKY, YELLOW
from ladder.show.plots.svg import CELL_HEIGHT, CELL_WIDTH, Drawing

_DRAWINGS: dict[str, tuple[int, str, Callable[[Drawing], None]]] = {}


def _drawing(name: str, height: int, alt: str) -> Callable[[Callable[[Drawing], None]], None]:
    """Registers a function that draws the picture of that name."""

    def register(draw: Callable[[Drawing], None]) -> None:
        _DRAWINGS[name] = (height, alt, draw)

    return register


def drawing_names() -> tuple[str, ...]:
    """The names that :func:`drawing` knows."""
    return tuple(_DRAWINGS)


def drawing(name: str) -> Drawing:
    """Draws the picture of that name, an exercise's or a lesson's. Raises :class:`LadderError`."""
    if name not in _DRAWINGS:
        raise LadderError(f"there is no drawing {name!r}", f"Drawings: {', '.join(_DRAWINGS)}")
    height, alt, draw = _DRAWINGS[name]
    made = Drawing(height, alt)
    draw(made)
    return made


def _numbers(count: int, first: int = 0) -> list[str]:
    return [str(first + number) for number in range(count)]


@_drawing(
    "threads",
    235,
    """A grid of three blocks. Block 1 is drawn large: its eight threads have numbers 0 to 7 in the block.
    Below each thread is the element that it takes: block 1 times 8 plus the thread's number, 8 to 15.""",
)
def _threads(d: Drawing) -> None:
    d.text(20, 15, "grid: 3 blocks", anchor="start", bold=True)
    for block, colour in enumerate((SKY, BLUE, SKY)):
        d.cell(20 + block * 150, 30, f"block {block}", colour, width=140, height=40)
    d.line(170, 70, 80, 105)
    d.line(310, 70, 400, 105)
    d.text(20, 118, "block 1: threadIdx.x", anchor="start", bold=True)
    d.row(80, 132, _numbers(8), BLUE)
    for thread in range(8):
        d.arrow(100 + thread * CELL_WIDTH, 164, 100 + thread * CELL_WIDTH, 192)
    d.row(80, 194, _numbers(8, 8), LIGHT)
    d.text(70, 209, "element", anchor="end")


@_drawing(
    "barrier",
    210,
    """Four threads over time. Each writes to shared memory, then arrives at the barrier at its own time,
    and waits. When the last one has arrived, all go on together and read.""",
)
def _barrier(d: Drawing) -> None:
    for thread, arrives in enumerate((150, 230, 120, 300)):
        y = 20 + thread * 36
        d.text(66, y + 13, f"thread {thread}", anchor="end")
        d.cell(70, y, "write", ORANGE, width=arrives - 70, height=26)
        if arrives < 300:
            d.cell(arrives, y, "wait" if arrives < 260 else "", LIGHT, width=300 - arrives, height=26)
        d.cell(306, y, "read", BLUE, width=120, height=26)
    d.line(303, 10, 303, 170)
    d.text(303, 182, "__syncthreads()", bold=True)
    d.arrow(70, 200, 440, 200)
    d.text(60, 200, "time", anchor="end")


@_drawing(
    "memory",
    270,
    """Memory from near to far. Each thread has registers. Each block has shared memory, about 100 KB on an
    SM, some 30 cycles away. All blocks share global memory, gigabytes, several hundred cycles away.""",
)
def _memory(d: Drawing) -> None:
    for block, x in enumerate((20, 250)):
        d.frame(x, 25, 210, 130, GREY)
        d.text(x + 105, 13, f"block {block}, on one SM", bold=True)
        for thread in range(4):
            d.cell(x + 10 + thread * 48, 35, f"t{thread}", BLUE, width=44, height=26)
            d.cell(x + 10 + thread * 48, 61, "regs", SKY, width=44, height=24, size=12)
            d.line(x + 32 + thread * 48, 87, x + 32 + thread * 48, 110)
        d.cell(x + 10, 110, "shared memory", ORANGE, width=190, height=34)
        d.line(x + 105, 155, x + 105, 190)
    d.cell(20, 190, "global memory", GREEN, width=440, height=36)
    d.text(20, 248, "shared: 100 KB, 30 cycles", anchor="start", size=13)
    d.text(460, 248, "global: gigabytes, hundreds of cycles", anchor="end", size=13)


@_drawing(
    "warps",
    190,
    """A block of 128 threads is cut into four warps of 32 threads: threads 0 to 31, 32 to 63, 64 to 95 and
    96 to 127. Below, warp 1 is drawn as 32 lanes, which execute one instruction together.""",
)
def _warps(d: Drawing) -> None:
    d.text(20, 15, "a block of 128 threads", anchor="start", bold=True)
    for warp, colour in enumerate((SKY, BLUE, SKY, SKY)):
        d.cell(20 + warp * 110, 30, f"{32 * warp} to {32 * warp + 31}", colour, width=110, height=34)
    d.line(130, 64, 20, 100)
    d.line(240, 64, 460, 100)
    for lane in range(32):
        d.cell(20 + lane * 13.75, 102, "", BLUE, width=13.75, height=30)
    d.text(27, 144, "0", size=12)
    d.text(453, 144, "31", size=12)
    d.text(240, 144, "lanes of warp 1", size=13, bold=True)
    d.text(240, 172, "one instruction, all lanes at once: sum += x")


@_drawing(
    "cuda_map",
    180,
    """Eight elements of x, eight threads of one block, eight elements of y. Thread 3 reads x[3] and writes
    y[3]; every thread does the same at its own place.""",
)
def _map(d: Drawing) -> None:
    x = ["4", "7", "1", "9", "3", "8", "2", "6"]
    for y, label in ((20, "x"), (80, "thread"), (140, "y")):
        d.text(90, y + 15, label, anchor="end")
    d.row(100, 20, x, LIGHT)
    d.row(100, 80, _numbers(8), [ORANGE if thread == 3 else BLUE for thread in range(8)])
    d.row(100, 140, [str(2 * int(value) + 1) for value in x], LIGHT)
    for thread in range(8):
        for y in (52, 112):
            d.arrow(120 + thread * CELL_WIDTH, y, 120 + thread * CELL_WIDTH, y + 26)


@_drawing(
    "cuda_map_2d",
    210,
    """An image of 3 rows and 4 columns, one thread per pixel. Below is memory: the 4 pixels of row 0, then
    those of row 1, then those of row 2, elements 0 to 11.""",
)
def _map_2d(d: Drawing) -> None:
    colours = (BLUE, ORANGE, GREEN)
    d.text(240, 12, "threadIdx.x: 0 to 3")
    d.text(152, 70, "threadIdx.y: 0 to 2", anchor="end", size=13)
    for row, colour in enumerate(colours):
        d.row(160, 25 + row * CELL_HEIGHT, [f"{row},{col}" for col in range(4)], colour)
    d.arrow(240, 120, 240, 150)
    d.row(24, 155, _numbers(12), [colours[element // 4] for element in range(12)], width=36)
    d.text(240, 198, "memory: row after row")


@_drawing(
    "cuda_vector_add",
    150,
    """Ten elements and three blocks of four threads each: twelve threads. The last two threads of the last
    block have no element.""",
)
def _vector_add(d: Drawing) -> None:
    colours = [(SKY, BLUE, SKY)[thread // 4] for thread in range(10)]
    for block in range(3):
        d.text(60 + 72 + block * 144 - 30, 12, f"block {block}")
    d.row(30, 25, [str(thread % 4) for thread in range(10)], colours, width=36)
    d.row(390, 25, ["2", "3"], GREY, width=36)
    for thread in range(10):
        d.arrow(48 + thread * 36, 57, 48 + thread * 36, 82)
    d.row(30, 84, _numbers(10), LIGHT, width=36)
    d.frame(390, 84, 72, CELL_HEIGHT, ORANGE, dashed=True)
    d.text(426, 99, "none", size=12)
    d.text(210, 135, "10 elements, 3 x 4 threads")


@_drawing(
    "cuda_broadcast",
    200,
    """Three numbers a, one per row, stand left of a table, and five numbers b, one per column, above it.
    Each entry of the table is the sum of its row's and its column's number; row 1 and column 3 are
    marked.""",
)
def _broadcast(d: Drawing) -> None:
    a, b = (10, 20, 30), (1, 2, 3, 4, 5)
    d.row(180, 20, [str(value) for value in b], [ORANGE if col == 3 else SKY for col in range(5)])
    d.text(170, 35, "b", anchor="end")
    d.text(132, 68, "a")
    for row, value in enumerate(a):
        y = 80 + row * CELL_HEIGHT
        d.cell(112, y, str(value), BLUE if row == 1 else SKY)
        for col, other in enumerate(b):
            colour = YELLOW if (row, col) == (1, 3) else LIGHT
            d.cell(180 + col * CELL_WIDTH, y, str(value + other), colour)
    d.arrow(152, 125, 178, 125, BLUE)
    d.arrow(320, 52, 320, 78, ORANGE)
    d.text(280, 185, "out[row][col] = a[row] + b[col]")


@_drawing(
    "cuda_shared_memory",
    190,
    """Six threads write their elements into the tile in shared memory. After the barrier, thread 3 also
    reads the place of thread 2, its left neighbour.""",
)
def _shared_memory(d: Drawing) -> None:
    x = ["5", "9", "4", "7", "2", "8"]
    for y, label in ((15, "own"), (75, "tile"), (145, "thread")):
        d.text(110, y + 15, label, anchor="end")
    d.row(120, 15, x, LIGHT)
    d.row(120, 75, x, ORANGE)
    d.row(120, 145, _numbers(6), [YELLOW if thread == 3 else BLUE for thread in range(6)])
    for thread in range(6):
        d.arrow(140 + thread * CELL_WIDTH, 47, 140 + thread * CELL_WIDTH, 73)
    d.line(100, 117, 400, 117, dashed=True)
    d.text(405, 117, "barrier", anchor="start")
    d.arrow(225, 107, 255, 143)
    d.arrow(264, 107, 264, 143)


@_drawing(
    "cuda_pooling",
    150,
    """Ten elements in shared memory. A frame around elements 4 to 7 is the window of element 7. Its
    largest, 9, is element 7 of the output.""",
)
def _pooling(d: Drawing) -> None:
    x = [3, 1, 8, 2, 9, 4, 6, 5, 7, 0]
    y = [max(x[max(0, i - 3) : i + 1]) for i in range(10)]
    d.text(65, 30, "tile", anchor="end")
    d.row(70, 15, [str(value) for value in x], ORANGE, width=39)
    d.frame(70 + 4 * 39, 13, 4 * 39, 34)
    d.arrow(70 + 7.5 * 39, 50, 70 + 7.5 * 39, 85)
    d.text(70 + 7.4 * 39, 67, "largest", anchor="end", size=13)
    d.text(65, 102, "y", anchor="end")
    d.row(70, 87, [str(value) for value in y], [BLUE if i == 7 else LIGHT for i in range(10)], width=39)
    d.text(265, 136, "each window: an element and the three before it")


@_drawing(
    "cuda_block_sum",
    240,
    """Eight numbers are added up in three steps. In each step the first half of what is left adds the
    second half: 8 numbers become 4, then 2, then 1.""",
)
def _block_sum(d: Drawing) -> None:
    values = [3, 1, 7, 2, 5, 4, 6, 8]
    y = 15
    while True:
        half = len(values) // 2
        colours = [BLUE if number < half or half == 0 else ORANGE for number in range(len(values))]
        d.row(80, y, [str(value) for value in values], colours)
        d.text(70, y + 15, f"{len(values)} left", anchor="end")
        if half == 0:
            break
        for number in range(half):
            d.arrow(100 + (number + half) * CELL_WIDTH, y + 32, 100 + number * CELL_WIDTH + 8, y + 58, ORANGE)
            d.arrow(100 + number * CELL_WIDTH, y + 32, 100 + number * CELL_WIDTH, y + 58, BLUE)
        values = [values[number] + values[number + half] for number in range(half)]
        y += 60


@_drawing(
    "cuda_stencil",
    190,
    """Elements 0 to 7 of x belong to two blocks, four to each. Block 1 keeps six in shared memory: its own
    4 to 7, element 3 before them, and a 0 behind them, where x has ended.""",
)
def _stencil(d: Drawing) -> None:
    d.text(60, 40, "x", anchor="end")
    d.row(70, 25, _numbers(8), [SKY] * 4 + [BLUE] * 4)
    d.text(150, 12, "block 0")
    d.text(310, 12, "block 1")
    for element in range(3, 8):
        d.arrow(90 + element * CELL_WIDTH, 57, 90 + element * CELL_WIDTH, 88)
    d.row(190, 90, ["3", "4", "5", "6", "7", "0"], [SKY, BLUE, BLUE, BLUE, BLUE, GREY])
    d.text(180, 105, "x_smem of block 1", anchor="end", size=13)
    d.frame(230, 88, 120, 34)
    d.arrow(290, 124, 290, 146)
    d.cell(270, 148, "y[5]", YELLOW)
    d.text(320, 163, "= x[4] + x[5] + x[6]", anchor="start", size=13)


@_drawing(
    "cuda_convolution_2d",
    230,
    """A tile of 4 x 4 pixels in the middle and a border of one pixel around it, 6 x 6 in all. A frame of 3
    x 3 pixels shows what one output pixel needs: it reaches into the border.""",
)
def _convolution_2d(d: Drawing) -> None:
    for row in range(6):
        for col in range(6):
            is_own = 0 < row < 5 and 0 < col < 5
            d.cell(40 + col * 34, 12 + row * 34, "", BLUE if is_own else SKY, width=34, height=34)
    d.frame(40, 12 + 34, 102, 102, ORANGE)
    d.cell(74, 12 + 68, "", YELLOW, width=34, height=34)
    for y, colour, text in (
        (50, BLUE, "the block's tile"),
        (95, SKY, "its border, partly outside"),
        (140, YELLOW, "an output pixel"),
    ):
        d.cell(262, y, "", colour, width=22, height=22)
        d.text(290, y + 11, text, anchor="start", size=12)
    d.frame(264, 185, 20, 20, ORANGE)
    d.text(290, 195, "what it needs: 3 x 3", anchor="start", size=12)


@_drawing(
    "cuda_scan",
    250,
    """Running sums of eight ones in three rounds. With distance 1 each element adds the one before it,
    with distance 2 the one two before it, with distance 4 the one four before it. The result is 1 to 8.""",
)
def _scan(d: Drawing) -> None:
    values, y = [1] * 8, 15
    d.row(130, y, [str(value) for value in values], LIGHT)
    for distance in (1, 2, 4):
        for element in range(distance, 8):
            d.arrow(
                150 + (element - distance) * CELL_WIDTH, y + 32, 145 + element * CELL_WIDTH, y + 66, ORANGE
            )
        values = [value + (values[i - distance] if i >= distance else 0) for i, value in enumerate(values)]
        y += 68
        colours = [BLUE if element >= distance else LIGHT for element in range(8)]
        d.row(130, y, [str(value) for value in values], colours)
        d.text(120, y - 19, f"distance {distance}", anchor="end")


@_drawing(
    "cuda_axis_sum",
    210,
    """A matrix of 4 rows and 6 columns, each column in the colour of its thread. Each thread goes down its
    column and writes the column's sum below. All threads read row 0 at the same time, then row 1.""",
)
def _axis_sum(d: Drawing) -> None:
    rows = ((1, 2, 3, 4, 5, 6), (2, 0, 1, 3, 1, 2), (4, 1, 0, 2, 2, 1), (1, 3, 2, 0, 4, 5))
    colours = [BLUE, SKY] * 3
    for row, values in enumerate(rows):
        d.row(140, 15 + row * CELL_HEIGHT, [str(value) for value in values], colours)
    d.frame(138, 13, 6 * CELL_WIDTH + 4, CELL_HEIGHT + 4, ORANGE)
    d.text(130, 30, "read together", anchor="end", size=13)
    for col in range(6):
        d.arrow(160 + col * CELL_WIDTH, 138, 160 + col * CELL_WIDTH, 160)
    d.row(140, 162, [str(sum(column)) for column in zip(*rows, strict=True)], GREEN)
    d.text(130, 177, "sums", anchor="end")


@_drawing(
    "cuda_matmul_naive",
    240,
    """Three matrices: a on the left, b above, c between them. Row 1 of a and column 3 of b are marked;
    their dot product is the marked element of c in row 1 and column 3.""",
)
def _matmul_naive(d: Drawing) -> None:
    for row in range(4):
        for col in range(5):
            colour = ORANGE if col == 3 else LIGHT
            d.cell(250 + col * 34, 15 + row * 24, "", colour, width=34, height=24)
            colour = YELLOW if (row, col) == (1, 3) else LIGHT
            d.cell(250 + col * 34, 130 + row * 24, "", colour, width=34, height=24)
        for col in range(4):
            d.cell(90 + col * 34, 130 + row * 24, "", BLUE if row == 1 else LIGHT, width=34, height=24)
    d.text(240, 63, "b (k, n)", anchor="end")
    d.text(80, 178, "a", anchor="end")
    d.text(158, 118, "(m, k)")
    d.text(450, 178, "c (m, n)", size=12)


@_drawing(
    "cuda_matmul",
    260,
    """Matrices in tiles: a of 2 x 3 tiles on the left, b of 3 x 2 tiles above, c of 2 x 2 tiles between.
    For the marked tile of c, tiles 1, 2 and 3 of a's tile row meet tiles 1, 2 and 3 of b's tile column,
    a pair at a time in shared memory.""",
)
def _matmul(d: Drawing) -> None:
    for k in range(3):
        for other in range(2):
            is_used = other == 1
            text = str(k + 1) if is_used else ""
            d.cell(70 + k * 52, 168 + other * 42, text, BLUE if is_used else LIGHT, width=52, height=42)
            d.cell(260 + other * 52, 12 + k * 42, text, ORANGE if is_used else LIGHT, width=52, height=42)
    for row in range(2):
        for col in range(2):
            colour = YELLOW if row == col == 1 else LIGHT
            d.cell(260 + col * 52, 168 + row * 42, "", colour, width=52, height=42)
    d.text(250, 75, "b", anchor="end")
    d.text(60, 210, "a", anchor="end")
    d.text(375, 210, "c", anchor="start")
    d.text(375, 60, "1 with 1,", anchor="start", size=13)
    d.text(375, 80, "2 with 2,", anchor="start", size=13)
    d.text(375, 100, "3 with 3", anchor="start", size=13)


@_drawing(
    "cuda_transpose",
    250,
    """A tile of 8 x 8 words in a memory of 8 banks, each word with the number of its bank. A row has all
    banks, 0 to 7. A column, framed, has one bank eight times, so it is read in eight turns.""",
)
def _transpose(d: Drawing) -> None:
    colours = (BLUE, ORANGE, GREEN, SKY, YELLOW, PURPLE, GREY, LIGHT)
    for row in range(8):
        d.row(60, 12 + row * 26, _numbers(8), colours, width=32, height=26)
    d.frame(60 + 2 * 32, 10, 32, 8 * 26 + 4)
    d.frame(60, 12 + 5 * 26, 8 * 32, 26)
    d.text(330, 12 + 5.5 * 26, "a row: 8 banks,", anchor="start", size=13)
    d.text(330, 30 + 5.5 * 26, "one wavefront", anchor="start", size=13)
    d.text(330, 40, "a column: one bank,", anchor="start", size=13)
    d.text(330, 58, "8 wavefronts", anchor="start", size=13)
    d.text(188, 236, "8 banks for the picture; hardware has 32", size=12)


@_drawing(
    "cuda_coalescing",
    220,
    """Four sectors of eight floats, twice. Above, four lanes read four floats of four sectors: four
    sectors are fetched. Below, four lanes read four neighbouring floats: one sector is fetched.""",
)
def _coalescing(d: Drawing) -> None:
    for y, places, text in (
        (40, (0, 8, 16, 24), "lanes 8 floats apart: each has a sector of its own"),
        (145, (0, 1, 2, 3), "lanes side by side: one sector for all"),
    ):
        d.text(20, y - 22, text, anchor="start", size=13)
        for place in range(32):
            is_fetched = any(place // 8 == one // 8 for one in places)
            colour = ORANGE if place in places else YELLOW if is_fetched else LIGHT
            text = str(places.index(place)) if place in places else ""
            d.cell(20 + place * 13.75, y, text, colour, width=13.75, height=28, size=11)
        for sector in range(4):
            d.frame(20 + sector * 110, y, 110, 28)
            d.text(75 + sector * 110, y + 42, f"sector {sector}", size=12)


@_drawing(
    "cuda_warp_sum",
    250,
    """Eight lanes exchange in three steps. With mask 4, lane 0 exchanges with lane 4, 1 with 5 and so on.
    With mask 2, 0 with 2. With mask 1, neighbours. After it, all lanes hold the sum 36.""",
)
def _warp_sum(d: Drawing) -> None:
    values, y = [1, 2, 3, 4, 5, 6, 7, 8], 15
    d.row(120, y, [str(value) for value in values], LIGHT)
    for mask, colour in ((4, BLUE), (2, ORANGE), (1, GREEN)):
        for lane in range(8):
            x = 140 + lane * CELL_WIDTH
            d.arrow(140 + (lane ^ mask) * CELL_WIDTH, y + 32, x, y + 66, colour)
        values = [value + values[lane ^ mask] for lane, value in enumerate(values)]
        y += 68
        d.row(120, y, [str(value) for value in values], LIGHT)
        d.text(110, y - 19, f"mask {mask}", anchor="end")


@_drawing(
    "cuda_row_softmax",
    190,
    """A row of twelve elements dealt to four lanes: lane 0 has elements 0, 4 and 8, lane 1 has 1, 5 and 9.
    Three steps over the row: its maximum m, the sum l of exp(s - m), and the results exp(s - m) / l.""",
)
def _row_softmax(d: Drawing) -> None:
    colours = (BLUE, ORANGE, GREEN, SKY)
    d.text(240, 12, "element, in the colour of its lane")
    d.row(24, 25, _numbers(12), [colours[element % 4] for element in range(12)], width=36)
    for lane, colour in enumerate(colours):
        d.cell(90 + lane * 80, 68, f"lane {lane}", colour, width=70)
    for step, text in enumerate(("1. maximum m", "2. sum l", "3. results")):
        d.cell(24 + step * 148, 125, text, LIGHT, width=136, height=38)
        if step < 2:
            d.arrow(160 + step * 148, 144, 172 + step * 148, 144)


@_drawing(
    "cuda_histogram",
    210,
    """Two threads and a counter that holds 5, over time. Thread 0 reads 5, thread 1 reads 5, thread 0
    writes 6, thread 1 writes 6. Two were counted, and the counter shows one more: a count is lost.""",
)
def _histogram(d: Drawing) -> None:
    for y, label in ((15, "thread 0"), (75, "counter"), (135, "thread 1")):
        d.text(85, y + 15, label, anchor="end")
    d.row(95, 75, ["5", "5", "5", "6", "6"], [ORANGE] * 3 + [GREEN] * 2, width=70)
    d.cell(95, 15, "reads 5", BLUE, width=70)
    d.cell(235, 15, "writes 6", BLUE, width=80)
    d.cell(165, 135, "reads 5", SKY, width=70)
    d.cell(340, 135, "writes 6", SKY, width=80)
    d.arrow(130, 73, 130, 47)
    d.arrow(290, 47, 310, 73)
    d.arrow(200, 107, 200, 133)
    d.arrow(395, 133, 395, 107)
    d.text(260, 190, "counted twice, and 5 became 6: one is lost")


@_drawing(
    "cuda_streams",
    190,
    """Two streams over time. Each part is copied to the GPU, computed and copied back. Parts 0 and 2 run
    in stream 0, parts 1 and 3 in stream 1: while part 0 is computed, part 1 is copied. Before all,
    stream 0 copies factor.""",
)
def _streams(d: Drawing) -> None:
    d.cell(75, 30, "factor", PURPLE, width=48, size=12)
    for stream, (y, first) in enumerate(((30, 123), (90, 163))):
        d.text(68, y + 15, f"stream {stream}", anchor="end", size=13)
        for part in range(2):
            for step, (text, colour) in enumerate((("in", SKY), ("", BLUE), ("out", GREEN))):
                label = text or f"part {2 * part + stream}"
                width = (36, 66, 38)[step]
                x = first + part * 142 + (0, 36, 102)[step]
                d.cell(x, y, label, colour, width=width, size=12)
    d.arrow(75, 145, 460, 145)
    d.text(68, 145, "time", anchor="end", size=13)
    for place, (text, colour) in enumerate(
        (("copy to the GPU", SKY), ("kernel", BLUE), ("copy back", GREEN))
    ):
        d.cell(75 + place * 140, 163, "", colour, width=18, height=18)
        d.text(98 + place * 140, 172, text, anchor="start", size=12)


@_drawing(
    "cuda_race",
    190,
    """Two warps over time, and the word part[0]. Both should read the maximum there. Warp 0 reads it and
    goes on: it writes its next value to part[0]. Warp 1 is slow and reads part[0] after that: it gets
    the wrong value.""",
)
def _race(d: Drawing) -> None:
    for y, label in ((20, "warp 0"), (80, "part[0]"), (140, "warp 1")):
        d.text(75, y + 15, label, anchor="end")
    d.row(85, 80, ["119", "119", "0", "0"], [ORANGE, ORANGE, GREY, GREY], width=90)
    d.cell(95, 20, "reads 119", BLUE, width=90)
    d.cell(255, 20, "writes 0", BLUE, width=90)
    d.cell(350, 140, "reads 0", SKY, width=90)
    d.arrow(140, 78, 140, 52)
    d.arrow(280, 52, 280, 78)
    d.arrow(395, 112, 395, 138)
    d.text(200, 155, "slow: should have read 119", size=13)


@_drawing(
    "cuda_hang",
    190,
    """Threads in three rounds of a loop. In rounds 0 and 1 all threads reach the barrier. In round 2 only
    threads 0 to 87 have an element and wait at the barrier in the loop. The others have left the loop
    and wait at another barrier behind it.""",
)
def _hang(d: Drawing) -> None:
    for turn in range(3):
        d.text(150 + turn * 80, 14, f"round {turn}", size=13)
        d.line(188 + turn * 80, 28, 188 + turn * 80, 128, dashed=turn == 2)
    d.text(106, 50, "threads 0-87", anchor="end", size=12)
    d.text(106, 105, "threads 88-255", anchor="end", size=12)
    d.row(112, 35, ["", "", "waits"], [BLUE, BLUE, ORANGE], width=76, height=32)
    d.row(112, 90, ["", ""], BLUE, width=76, height=32)
    d.cell(390, 90, "waits", ORANGE, width=76, height=32)
    d.arrow(270, 106, 386, 106)
    d.line(468, 28, 468, 128, dashed=True)
    d.text(344, 145, "barrier in the loop", size=12, anchor="end")
    d.text(470, 145, "barrier behind it", size=12, anchor="end")
    d.text(240, 175, "neither is complete, ever")


@_drawing(
    "cuda_mixed_precision",
    200,
    """A half has 1 bit for the sign, 5 for the exponent and 10 for digits. A float has 1, 8 and 23. Two
    halves from memory become two floats in registers, and their products are summed in a float.""",
)
def _mixed_precision(d: Drawing) -> None:
    d.text(70, 30, "half", anchor="end")
    d.row(80, 15, [""], GREY, width=11)
    d.cell(91, 15, "5", ORANGE, width=55)
    d.cell(146, 15, "10", BLUE, width=110)
    d.text(70, 75, "float", anchor="end")
    d.row(80, 60, [""], GREY, width=11)
    d.cell(91, 60, "8", ORANGE, width=88)
    d.cell(179, 60, "23 digits", BLUE, width=253)
    d.text(270, 30, "sign, exponent, digits", anchor="start", size=13)
    d.cell(60, 135, "half2", SKY, width=80, height=34)
    d.text(100, 120, "memory", size=13)
    d.arrow(145, 152, 190, 152)
    d.cell(195, 135, "float2", GREEN, width=90, height=34)
    d.text(240, 120, "registers", size=13)
    d.arrow(290, 152, 335, 152)
    d.cell(340, 135, "float sum", GREEN, width=100, height=34)


@_drawing(
    "cluster",
    250,
    """A row in two blocks of a cluster. Block 0 holds its first half in registers, block 1 the second. Each
    sums its half, writes the sum into the mailbox in the other block's shared memory with st.async, waits
    at the mbarrier of its own mailbox, and adds what it finds there.""",
)
def _cluster(d: Drawing) -> None:
    for x, rank, half in ((10, 0, "first half"), (260, 1, "second half")):
        d.frame(x, 30, 210, 210, GREY)
        d.text(x + 105, 16, f"block {rank}, its own SM")
        d.cell(x + 10, 40, f"row: {half}", SKY, width=190)
        d.text(x + 10, 92, "registers", anchor="start", size=12)
        d.cell(x + 115, 80, f"sum {rank}", BLUE, width=85)
        d.text(x + 10, 185, "shared memory", anchor="start", size=12)
        d.cell(x + 10, 200, f"sum {1 - rank}", ORANGE, width=85)
        d.cell(x + 95, 200, "mbarrier", YELLOW, width=105)
    d.arrow(140, 112, 300, 196)
    d.arrow(410, 112, 80, 196)
    d.text(240, 125, "st.async", size=13)
