"""The emulator's cuBLAS beside NumPy, called as a program calls it."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator

import numpy as np
import pytest

from ladder.compile import emulator_library

TYPES = {"S": np.float32, "D": np.float64, "C": np.complex64, "Z": np.complex128}
N, T, C = 0, 1, 2
SUCCESS, NOT_INITIALIZED, INVALID_VALUE, EXECUTION_FAILED, NOT_SUPPORTED = 0, 1, 7, 13, 15
R_32F, R_16F, R_8I, R_32I, R_16BF, R_8F_E4M3 = 0, 2, 3, 10, 14, 28
COMPUTE_16F, COMPUTE_32F, COMPUTE_32I = 64, 68, 72


class Library:
    """Calls functions by their public names, with one handle. Arrays go by address, as do scalars."""

    def __init__(self) -> None:
        self.library = ctypes.CDLL(str(emulator_library().shared))
        self.handle = ctypes.c_void_p()
        assert self.library.ladder_cublasCreate_v2(ctypes.byref(self.handle)) == SUCCESS
        self.allocated: list[ctypes.c_void_p] = []
        self.scalars: list[np.ndarray] = []  # the addresses of these are passed

    def device(self, values: np.ndarray) -> np.ndarray:
        """A copy in memory of the emulated GPU, column-major where it has two axes."""
        pointer = ctypes.c_void_p()
        assert self.library.ladder_cudaMallocManaged(ctypes.byref(pointer), max(1, values.nbytes), 1) == 0
        self.allocated.append(pointer)
        memory = (ctypes.c_char * values.nbytes).from_address(pointer.value)
        copy = np.frombuffer(memory, values.dtype).reshape(values.shape, order="F")
        copy[...] = values
        return copy

    def __call__(self, name: str, *arguments: object) -> int:
        function = getattr(self.library, f"ladder_{name}")
        return function(self.handle, *(self._passed(argument) for argument in arguments))

    def _passed(self, argument: object) -> object:
        if isinstance(argument, np.generic):
            argument = np.asarray(argument)
            self.scalars.append(argument)
        return ctypes.c_void_p(argument.ctypes.data) if isinstance(argument, np.ndarray) else argument


@pytest.fixture
def blas() -> Iterator[Library]:
    library = Library()
    yield library
    for pointer in library.allocated:
        assert library.library.ladder_cudaFree(pointer) == 0
    assert library("cublasDestroy_v2") == SUCCESS


def numbers(dtype: type, *shape: int, seed: int = 0) -> np.ndarray:
    random = np.random.default_rng(seed)
    values = random.standard_normal(shape)
    if np.issubdtype(dtype, np.complexfloating):
        values = values + 1j * random.standard_normal(shape)
    return values.astype(dtype)


def op(matrix: np.ndarray, operation: int) -> np.ndarray:
    return {N: matrix, T: matrix.T, C: matrix.conj().T}[operation]


def close(found: np.ndarray, wanted: np.ndarray) -> None:
    dtype = found.dtype
    exact = np.complex128 if np.issubdtype(dtype, np.complexfloating) else np.float64
    wanted = np.asarray(wanted).astype(exact)
    # Sums are those of doubles, rounded once.
    np.testing.assert_allclose(found.astype(exact), wanted, rtol=4 * np.finfo(dtype).eps, atol=1e-13)


def wide(matrix: np.ndarray) -> np.ndarray:
    complex_ = np.issubdtype(matrix.dtype, np.complexfloating)
    return matrix.astype(np.complex128 if complex_ else np.float64)


@pytest.mark.parametrize("letter", "SDCZ")
@pytest.mark.parametrize("transa", [N, T, C])
@pytest.mark.parametrize("transb", [N, T, C])
def test_gemm_with_every_transpose_and_padding(blas, letter, transa, transb):
    """Leading dimensions above the rows, and NaN in C where beta is 0."""
    dtype = TYPES[letter]
    m, n, k = 5, 7, 3
    a = blas.device(numbers(dtype, *((m + 2, k) if transa == N else (k + 2, m))))
    b = blas.device(numbers(dtype, *((k + 1, n) if transb == N else (n + 1, k)), seed=1))
    c = blas.device(np.full((m + 3, n), np.nan, dtype))
    one, zero, two = dtype(1.5), dtype(0), dtype(-2)
    sizes = (transa, transb, m, n, k)
    words = (one, a, a.shape[0], b, b.shape[0])
    assert blas(f"cublas{letter}gemm_v2", *sizes, *words, zero, c, m + 3) == SUCCESS
    rows_a, rows_b = (m if transa == N else k), (k if transb == N else n)
    product = op(wide(a[:rows_a]), transa) @ op(wide(b[:rows_b]), transb)
    close(c[:m], 1.5 * product)
    assert np.isnan(c[m:]).all(), "rows beyond m are not C's"
    before = wide(c[:m])
    assert blas(f"cublas{letter}gemm_v2", *sizes, *words, two, c, m + 3) == SUCCESS
    close(c[:m], 1.5 * product - 2 * before)


@pytest.mark.parametrize(("m", "n", "k"), [(1, 1, 1), (130, 9, 300), (257, 131, 513), (3, 2, 0), (0, 4, 4)])
@pytest.mark.parametrize("letter", "DZ")
def test_gemm_of_more_than_a_tile(blas, letter, m, n, k):
    dtype = TYPES[letter]
    a, b = blas.device(numbers(dtype, m, k)), blas.device(numbers(dtype, k, n, seed=1))
    c = blas.device(numbers(dtype, m, n, seed=2))
    wanted = a @ b + c
    leading = (max(1, m), max(1, k), max(1, m))
    done = blas(
        f"cublas{letter}gemm_v2",
        N,
        N,
        m,
        n,
        k,
        dtype(1),
        a,
        leading[0],
        b,
        leading[1],
        dtype(1),
        c,
        leading[2],
    )
    assert done == SUCCESS
    np.testing.assert_allclose(c, wanted, rtol=1e-11, atol=1e-11)


def test_an_alpha_of_zero_reads_neither_factor(blas):
    a = blas.device(np.full((2, 2), np.nan, np.float32))
    c = blas.device(np.ones((2, 2), np.float32))
    assert blas("cublasSgemm_v2", N, N, 2, 2, 2, np.float32(0), a, 2, a, 2, np.float32(3), c, 2) == SUCCESS
    assert (c == 3).all()


@pytest.mark.parametrize(
    ("inputs", "output", "compute", "dtypes"),
    [
        (R_16F, R_16F, COMPUTE_16F, (np.float16, np.float16, np.float16)),
        (R_16F, R_32F, COMPUTE_32F, (np.float16, np.float32, np.float32)),
        (R_16F, R_16F, COMPUTE_32F, (np.float16, np.float16, np.float32)),
        (R_8I, R_32I, COMPUTE_32I, (np.int8, np.int32, np.int32)),
    ],
)
def test_gemm_ex(blas, inputs, output, compute, dtypes):
    source, target, scale = dtypes
    a = blas.device((8 * numbers(np.float64, 6, 40)).astype(source))
    b = blas.device((8 * numbers(np.float64, 40, 5, seed=1)).astype(source))
    c = blas.device(np.zeros((6, 5), target))
    done = blas(
        *("cublasGemmEx", N, N, 6, 5, 40, scale(2), a, inputs, 6, b, inputs, 40),
        *(scale(0), c, output, 6, compute, -1),
    )
    assert done == SUCCESS
    assert (c == (2 * (a.astype(np.float64) @ b.astype(np.float64))).astype(target)).all()


def test_gemm_ex_of_bfloat16(blas):
    """A bfloat16 is the upper half of a float."""
    whole = numbers(np.float32, 4, 4).view(np.uint32) & 0xFFFF0000
    a, c = blas.device((whole >> 16).astype(np.uint16)), blas.device(np.zeros((4, 4), np.float32))
    one, zero = np.float32(1), np.float32(0)
    done = blas(
        "cublasGemmEx", N, N, 4, 4, 4, one, a, R_16BF, 4, a, R_16BF, 4, zero, c, R_32F, 4, COMPUTE_32F, -1
    )
    assert done == SUCCESS
    values = whole.view(np.float32).astype(np.float64)
    close(c, values @ values)


def test_types_that_cublas_does_not_combine_are_refused(blas, capfd):
    a = blas.device(np.zeros((4, 4), np.float32))
    one = np.float32(1)
    for kind in (R_8F_E4M3, R_32I):
        words = (
            "cublasGemmEx",
            N,
            N,
            4,
            4,
            4,
            one,
            a,
            kind,
            4,
            a,
            kind,
            4,
            one,
            a,
            R_32F,
            4,
            COMPUTE_32F,
            -1,
        )
        assert blas(*words) == NOT_SUPPORTED
    assert "cublasGemmEx: this combination of types does not exist: A 28" in capfd.readouterr().err


@pytest.mark.parametrize("letter", "SDCZ")
def test_batches(blas, letter):
    dtype = TYPES[letter]
    count, m, n, k = 3, 4, 5, 6
    a = blas.device(numbers(dtype, m * k * count))
    b = blas.device(numbers(dtype, k * n * count, seed=1))
    c, d = (blas.device(np.zeros(m * n * count, dtype)) for _ in range(2))
    one, zero = dtype(1), dtype(0)
    strides = [ctypes.c_longlong(size) for size in (m * k, k * n, m * n)]
    done = blas(
        *(f"cublas{letter}gemmStridedBatched", N, N, m, n, k, one, a, m, strides[0], b, k, strides[1]),
        *(zero, c, m, strides[2], count),
    )
    assert done == SUCCESS
    pointers = [
        blas.device(np.array([x.ctypes.data + i * size * x.itemsize for i in range(count)], np.uint64))
        for x, size in ((a, m * k), (b, k * n), (d, m * n))
    ]
    words = (one, pointers[0], m, pointers[1], k, zero, pointers[2], m, count)
    assert blas(f"cublas{letter}gemmBatched", N, N, m, n, k, *words) == SUCCESS
    for i in range(count):
        left = a[i * m * k :][: m * k].reshape(m, k, order="F")
        right = b[i * k * n :][: k * n].reshape(k, n, order="F")
        close(c[i * m * n :][: m * n].reshape(m, n, order="F"), wide(left) @ wide(right))
    assert (c == d).all()


@pytest.mark.parametrize("letter", "SDCZ")
@pytest.mark.parametrize("trans", [N, T, C])
@pytest.mark.parametrize(("incx", "incy"), [(1, 1), (2, -3)])
def test_gemv(blas, letter, trans, incx, incy):
    dtype = TYPES[letter]
    m, n = 6, 4
    a = blas.device(numbers(dtype, m + 1, n))
    rows, columns = (m, n) if trans == N else (n, m)
    x = blas.device(numbers(dtype, columns * incx, seed=1))
    y = blas.device(np.full(rows * abs(incy), np.nan, dtype))
    words = (trans, m, n, dtype(2), a, m + 1, x, incx, dtype(0), y, incy)
    assert blas(f"cublas{letter}gemv_v2", *words) == SUCCESS
    # A negative increment begins at the end.
    found = y[::incy] if incy > 0 else y[: (rows - 1) * -incy + 1][::incy]
    close(found, 2 * op(wide(a[:m]), trans) @ wide(x[::incx]))


@pytest.mark.parametrize("letter", "SDCZ")
def test_vectors(blas, letter):
    dtype = TYPES[letter]
    real = np.zeros(1, dtype).real.dtype.type
    x, y = numbers(dtype, 50), numbers(dtype, 50, seed=1)
    x[17] = 100
    on_x, on_y = blas.device(x), blas.device(y)
    assert blas(f"cublas{letter}axpy_v2", 50, dtype(3), on_x, 1, on_y, 1) == SUCCESS
    close(on_y, 3 * wide(x) + wide(y))
    assert blas(f"cublas{letter}scal_v2", 25, dtype(2), on_x, 2) == SUCCESS
    x[::2] *= 2
    assert (on_x == x).all()
    index, size = np.zeros(1, np.int32), np.zeros(1, real)
    assert blas(f"cublasI{letter.lower()}amax_v2", 50, on_x, 1, index) == SUCCESS and index[0] == 18
    parts = np.abs(x.real) + np.abs(x.imag)
    assert blas(f"cublasI{letter.lower()}amin_v2", 50, on_x, 1, index) == SUCCESS
    assert index[0] == parts.argmin() + 1
    prefix = {"S": "S", "D": "D", "C": "Sc", "Z": "Dz"}[letter]
    assert blas(f"cublas{prefix}nrm2_v2", 50, on_x, 1, size) == SUCCESS
    close(size, np.array([np.linalg.norm(wide(x))]))
    assert blas(f"cublas{prefix}asum_v2", 50, on_x, 1, size) == SUCCESS
    close(size, np.array([parts.astype(np.float64).sum()]))
    result = np.zeros(1, dtype)
    forms = {"dot": x} if letter in "SD" else {"dotu": x, "dotc": x.conj()}
    for name, left in forms.items():
        assert blas(f"cublas{letter}{name}_v2", 50, on_x, 1, on_y, 1, result) == SUCCESS
        np.testing.assert_allclose(result[0], (wide(left) * wide(on_y)).sum(), rtol=1e-5)
    before = on_x.copy(), on_y.copy()
    assert blas(f"cublas{letter}swap_v2", 50, on_x, 1, on_y, 1) == SUCCESS
    assert (on_x == before[1]).all() and (on_y == before[0]).all()
    assert blas(f"cublas{letter}copy_v2", 50, on_x, 1, on_y, -1) == SUCCESS
    assert (on_y == on_x[::-1]).all()


def test_a_norm_neither_overflows_nor_vanishes(blas):
    result = np.zeros(1, np.float64)
    for size in (1e300, 1e-300, np.inf):
        x = blas.device(np.full(4, size))
        assert blas("cublasDnrm2_v2", 4, x, 1, result) == SUCCESS and result[0] == 2 * size


def test_rotation_and_rank_one(blas):
    x, y = blas.device(np.array([1.0, 2.0])), blas.device(np.array([3.0, 4.0]))
    assert blas("cublasDrot_v2", 2, x, 1, y, 1, np.float64(0.6), np.float64(0.8)) == SUCCESS
    np.testing.assert_allclose(x, [3.0, 4.4])
    np.testing.assert_allclose(y, [1.0, 0.8])
    a = blas.device(np.ones((2, 2)))
    assert blas("cublasDger_v2", 2, 2, np.float64(2), x, 1, y, 1, a, 2) == SUCCESS
    np.testing.assert_allclose(a, 1 + 2 * np.outer(x, y))


@pytest.mark.parametrize("letter", "SDCZ")
def test_geam_and_dgmm(blas, letter):
    dtype = TYPES[letter]
    m, n = 4, 3
    a, b = blas.device(numbers(dtype, n, m)), blas.device(numbers(dtype, m + 1, n, seed=1))
    c = blas.device(np.full((m, n), np.nan, dtype))
    words = (T, N, m, n, dtype(2), a, n, dtype(-1), b, m + 1, c, m)
    assert blas(f"cublas{letter}geam", *words) == SUCCESS
    close(c, 2 * wide(a).T - wide(b[:m]))
    x = blas.device(numbers(dtype, n, seed=2))
    d = blas.device(np.zeros((m, n), dtype))
    assert blas(f"cublas{letter}dgmm", 1, m, n, c, m, x, 1, d, m) == SUCCESS
    close(d, wide(c) * wide(x))


@pytest.mark.parametrize("side", [0, 1])
@pytest.mark.parametrize("uplo", [0, 1])
@pytest.mark.parametrize("letter", "DZ")
def test_symmetric_and_triangular(blas, letter, side, uplo):
    dtype = TYPES[letter]
    m, n = 5, 4
    size = n if side else m
    stored = numbers(dtype, size, size) + 3 * np.eye(size)
    triangle = np.triu(stored) if uplo else np.tril(stored)
    # What is not stored must not be read.
    a = blas.device(np.where(triangle != 0, triangle, np.nan).astype(dtype))
    b, c = blas.device(numbers(dtype, m, n, seed=1)), blas.device(np.zeros((m, n), dtype))
    assert (
        blas(f"cublas{letter}symm_v2", side, uplo, m, n, dtype(1), a, size, b, m, dtype(0), c, m) == SUCCESS
    )
    whole = triangle + triangle.T - np.diag(np.diag(triangle))
    np.testing.assert_allclose(c, b @ whole if side else whole @ b, rtol=1e-12)
    for trans in (N, T, C):
        for diag in (0, 1):
            x = blas.device(np.array(b))
            words = (side, uplo, trans, diag, m, n, dtype(2), a, size, x, m)
            assert blas(f"cublas{letter}trsm_v2", *words) == SUCCESS
            solved = triangle - np.diag(np.diag(triangle)) + np.eye(size) if diag else triangle
            left = op(solved, trans)
            np.testing.assert_allclose(x @ left if side else left @ x, 2 * b, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("trans", [N, T])
def test_a_rank_k_update_leaves_the_other_triangle(blas, trans):
    a = blas.device(numbers(np.float64, *((4, 3) if trans == N else (3, 4))))
    c = blas.device(np.full((4, 4), 7.0))
    words = (0, trans, 4, 3, np.float64(1), a, a.shape[0], np.float64(0), c, 4)
    assert blas("cublasDsyrk_v2", *words) == SUCCESS
    left = op(a, trans)
    lower = np.tril(np.ones((4, 4), bool))
    np.testing.assert_allclose(c[lower], (left @ left.T)[lower])
    assert (c[~lower] == 7).all()


def test_scalars_in_device_memory(blas, capfd):
    x = blas.device(np.array([3.0, 4.0]))
    alpha, result = blas.device(np.array([2.0])), blas.device(np.zeros(1))
    assert blas("cublasSetPointerMode_v2", 1) == SUCCESS
    assert blas("cublasDscal_v2", 2, alpha, x, 1) == SUCCESS and (x == [6, 8]).all()
    assert blas("cublasDnrm2_v2", 2, x, 1, result) == SUCCESS and result[0] == 10
    assert blas("cublasDscal_v2", 2, np.float64(2), x, 1) == INVALID_VALUE
    assert "cublasDscal: alpha is host memory, but the pointer mode says device" in capfd.readouterr().err


def test_what_is_wrong_is_named(blas, capfd):
    a = blas.device(np.zeros((4, 4), np.float32))
    one = np.float32(1)
    assert blas("cublasSgemm_v2", N, N, 4, 4, 4, one, a, 3, a, 4, one, a, 4) == INVALID_VALUE
    assert blas("cublasSgemm_v2", N, N, 4, 4, 5, one, a, 4, a, 5, one, a, 4) == EXECUTION_FAILED
    host = np.zeros((4, 4), np.float32)
    assert blas("cublasSgemm_v2", N, N, 4, 4, 4, one, host, 4, a, 4, one, a, 4) == EXECUTION_FAILED
    live, blas.handle = blas.handle, ctypes.c_void_p(16)
    assert blas("cublasSscal_v2", 4, one, a, 1) == NOT_INITIALIZED
    blas.handle = live
    said = capfd.readouterr().err
    for words in (
        "cublasSgemm: lda is 3, and A has 4 rows",
        "cublasSgemm: A is 80 bytes that are not all device memory",
        "cublasSgemm: A is 64 bytes that are not all device memory",
        "cublasSscal: the handle is none that cublasCreate returned",
    ):
        assert words in said
