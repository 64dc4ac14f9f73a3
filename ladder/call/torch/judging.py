"""The judge of ``ladder verify``: is a ``ModelNew``, or a ``.cu``, right, and do its kernels do the work?

Reference and candidate run in processes of their own, confined and limited; this process runs neither. It
compares what they wrote. docs/verify.md has the rules, and what they cannot see.
"""

from __future__ import annotations

import json
import shutil
import signal
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ladder.call.torch import judged
from ladder.call.torch.device_library import cuda_home, device_library
from ladder.call.torch.launching import Launch
from ladder.common import cache, files
from ladder.common.isolation import Child, ProcessEnded
from ladder.errors import InvalidProblem
from ladder.run.emulator import likeliest_first, parse_findings
from ladder.stages import DEFAULT_ARCH, require_arch

if TYPE_CHECKING:
    from torch import Tensor

RIGHT, WRONG, NOT_JUDGED = "right", "wrong", "not judged"
#: By output format, the largest error relative to the largest output, besides 16 times the reference's own.
TOLERANCES = {"float64": 2.0**-30, "float32": 2.0**-14, "float16": 2.0**-8, "bfloat16": 2.0**-6}
_OWN_ERRORS = 16
#: The runs after the first one. Each gets the first case only.
_FURTHER: Mapping[str, Mapping[str, Any]] = {
    "without kernels": {"skip_kernels": True},
    "in another order": {"backwards": True, "unwritten": 0x3F},
    "under the sanitizer": {"check": True},
}
_FINDINGS_SHOWN = 5


@dataclass(frozen=True)
class Reason:
    """Why a candidate is refused, or why nothing can be said: a kind for programs, a sentence for people."""

    kind: str
    message: str


@dataclass(frozen=True)
class Compared:
    """One case: the largest error of the first call, and its limit."""

    constants: Mapping[str, int]
    inputs: str
    error: float
    limit: float


@dataclass
class Verdict:
    """``right``, ``wrong`` or ``not judged``, with all reasons."""

    verdict: str = RIGHT
    reasons: list[Reason] = field(default_factory=list)
    cases: list[Compared] = field(default_factory=list)
    kernels: list[str] = field(default_factory=list)
    torch_operations: list[str] = field(default_factory=list)
    protections: list[str] = field(default_factory=list)
    seconds: float = 0.0

    @property
    def exit_code(self) -> int:
        return {RIGHT: 0, WRONG: 1, NOT_JUDGED: 2}[self.verdict]

    def as_json(self, **names: str) -> str:
        """The verdict on several lines; with ``names`` of what was judged, these and the verdict on one."""
        return json.dumps({**names, **asdict(self)}, indent=None if names else 2)


@dataclass(frozen=True)
class Limits:
    """What the verdict may take: seconds for all runs, and memory per process."""

    seconds: float = 300.0
    memory_bytes: int = 4 * 2**30


@dataclass(frozen=True)
class _Case:
    """A case of the reference: inputs by description, with their bytes; outputs, and the bound of each."""

    name: str
    inputs: Sequence[Mapping[str, Any]]
    contents: Mapping[str, bytes]
    usual: Sequence[Tensor]
    exact: Sequence[Tensor]
    bounds: Sequence[float]
    call: Mapping[str, Any] | None


class _Stop(Exception):
    """Ends the judging with this verdict."""

    def __init__(self, verdict: str, kind: str, message: str) -> None:
        super().__init__(message)
        self.verdict, self.reason = verdict, Reason(kind, message)


def verify(
    candidate: Path,
    reference: Path,
    *,
    launch: Launch | None = None,
    shapes: Sequence[Mapping[str, int]] = (),
    shrink: bool = False,
    arch: str | None = None,
    tolerance: float | None = None,
    limits: Limits | None = None,
) -> Verdict:
    """Judges the ``ModelNew`` of ``candidate``, or a ``.cu`` with its ``launch``, by the ``Model`` or the
    function ``reference`` of ``reference``.

    ``shapes`` replace constants of the reference's module, one set after the other; without any, the
    reference runs as it is. With ``shrink``, its other constants become smaller by the rule of
    :mod:`ladder.call.torch.shrinking`. ``tolerance`` replaces the tolerance of the output's format.

    Raises :class:`LadderError` for a file that does not exist, a ``.cu`` without a launch, an unknown
    architecture, or a torch that cannot be given the emulated device.
    """
    arch = arch or DEFAULT_ARCH
    require_arch(arch)
    files.require_file(candidate, (".py", ".cu", ".cuh"))
    files.require_file(reference, (".py",))
    if (candidate.suffix != ".py") != (launch is not None):
        raise InvalidProblem("a .cu needs a launch, and a .py has none", "docs/verify.md has an example.")
    cuda_home()
    device_library()
    began = time.monotonic()
    verdict = Verdict()
    judge = _Judge(candidate, reference, launch, shrink, arch, tolerance, limits or Limits(), verdict, began)
    try:
        # One folder for all sizes: what the candidate builds, it builds once.
        with tempfile.TemporaryDirectory(prefix="ladder-") as folder:
            for constants in shapes or [{}]:
                judge.judge(constants, Path(folder))
    except _Stop as stop:
        verdict.verdict = stop.verdict
        verdict.reasons.append(stop.reason)
    if verdict.verdict == RIGHT and verdict.reasons:
        verdict.verdict = WRONG
    verdict.seconds = round(time.monotonic() - began, 1)
    return verdict


@dataclass
class _Judge:
    candidate: Path
    reference: Path
    launch: Launch | None
    shrink: bool
    arch: str
    tolerance: float | None
    limits: Limits
    verdict: Verdict
    began: float

    def judge(self, constants: Mapping[str, int], folder: Path) -> None:
        """Judges the candidate with these constants of the reference; ``folder`` is the candidate's."""
        with tempfile.TemporaryDirectory(prefix="ladder-") as name:
            constants, init, cases = self._reference(constants, Path(name))
        # The outputs of the reference are in this process only, where no candidate can read them.
        shutil.copyfile(self.candidate, folder / self.candidate.name)
        for case in cases:
            for file, data in case.contents.items():
                (folder / file).write_bytes(data)
        self._first_run(folder, init, cases, constants)
        if self.verdict.reasons:
            return  # what is wrong already needs no further run
        for treatment, options in _FURTHER.items():
            self._further_run(folder, init, cases[0], treatment, options)

    def _run(self, folder: Path, job: Mapping[str, Any]) -> dict[str, Any]:
        """Runs a job in a confined process. Its answer has ``error`` if the process ended without one."""
        environment = {
            "HOME": str(folder),
            "TORCH_EXTENSIONS_DIR": str(folder / "extensions"),
            "XDG_CACHE_HOME": str(cache.root().parent),
            # torch calls ccache where it is installed, and its folder cannot be written here.
            "CCACHE_DISABLE": "1",
            "LADDER_ARCH": self.arch,
        }
        left = self.limits.seconds - (time.monotonic() - self.began)
        if left <= 0:
            return {"error": "limit", "message": f"all runs took more than {self.limits.seconds:.0f} seconds"}
        job = {"arch": self.arch, "launch": asdict(self.launch) if self.launch else None, **job}
        try:
            (folder / judged.RESULT).unlink(missing_ok=True)
            with Child(
                preload=["ladder.call.torch.preloaded"],
                folder=folder,
                memory_bytes=self.limits.memory_bytes,
                keeps_output=True,
                server="ladder verify",
            ) as child:
                self.verdict.protections = child.protections
                child.ask(judged.run, job, str(folder), environment, seconds=left)
        except ProcessEnded as error:
            kind = "limit" if error.code == -signal.SIGKILL else "process"
            return {"error": kind, "message": error.message}
        except OSError as error:
            return {"error": "answer", "message": f"its folder is not as it was: {error.strerror}"}
        try:
            return dict(json.loads(judged.contents(folder, judged.RESULT)))
        except (OSError, ValueError, TypeError, RecursionError):
            return {"error": "process", "message": "its process ended without a result"}

    def _reference(
        self, constants: Mapping[str, int], folder: Path
    ) -> tuple[Mapping[str, int], list[Any], list[_Case]]:
        """The constants that it has set, what models are made of, and the cases."""
        file = str(self.reference.resolve())
        job = {"is_candidate": False, "file": file, "constants": dict(constants), "shrink": self.shrink}
        result = self._run(folder, job)
        if "error" in result:
            raise _Stop(NOT_JUDGED, "reference", f"the reference: {result['error']}: {result['message']}")
        try:
            cases = [self._case(described, folder) for described in result["cases"]]
            init, constants = list(result["init"]), dict(result["constants"])
        except (KeyError, TypeError, ValueError, AttributeError, OSError) as error:
            raise _Stop(
                NOT_JUDGED, "reference", f"the reference has written something else: {error}"
            ) from error
        if not all(described["is_the_same_again"] for described in result["cases"]):
            raise _Stop(NOT_JUDGED, "reference", "the reference computes something else in each call")
        finite = [case for case in cases if all(one.isfinite().all() for one in (*case.usual, *case.exact))]
        if not finite or finite[0] is not cases[0]:
            raise _Stop(NOT_JUDGED, "reference", "the reference's outputs are not finite")
        if not _depend_on_inputs(finite):
            message = "the reference's outputs are the same for all inputs, within the bounds"
            raise _Stop(NOT_JUDGED, "reference", message)
        return constants, init, finite

    def _case(self, described: Mapping[str, Any], folder: Path) -> _Case:
        usual, exact = ([judged.read(folder, one) for one in described[key]] for key in ("usual", "exact"))
        call = described.get("call")
        given = [*described["inputs"], *(call["initial"] if call else ())]
        contents = {one["file"]: judged.contents(folder, one["file"]) for one in given if "file" in one}
        bounds = [self._bound(one, two) for one, two in zip(usual, exact, strict=True)]
        return _Case(described["name"], described["inputs"], contents, usual, exact, bounds, call)

    def _bound(self, usual: Tensor, exact: Tensor) -> float:
        """The largest error allowed: of whole numbers none."""
        name = str(usual.dtype).removeprefix("torch.")
        if not usual.is_floating_point() or not usual.numel():
            return 0.0
        relative = self.tolerance if self.tolerance is not None else TOLERANCES.get(name, 0.0)
        own = float((usual.double() - exact).abs().max())
        return _OWN_ERRORS * own + relative * float(exact.abs().max())

    def _job(self, folder: Path, init: Sequence[Any], cases: Sequence[_Case], calls: int) -> dict[str, Any]:
        return {
            "is_candidate": True,
            "file": str(folder / self.candidate.name),
            "beside": str(self.candidate.resolve().parent),
            "init": init,
            "cases": [{"inputs": list(case.inputs), "call": case.call} for case in cases],
            "calls": calls,
        }

    def _first_run(
        self, folder: Path, init: Sequence[Any], cases: Sequence[_Case], constants: Mapping[str, int]
    ) -> None:
        """All cases, two calls each, on the same tensors. Everything else builds on this run."""
        result = self._run(folder, {**self._job(folder, init, cases, 2), "options": {}})
        _require_run(result)
        try:
            self.verdict.kernels = [str(one) for one in result["kernels"]]
            self.verdict.torch_operations = [str(one) for one in result["operations"]]
            for case, answer in zip(cases, result["cases"], strict=True):
                for call, outputs in enumerate(answer["calls"]):
                    self._compare(
                        case, folder, outputs, f"in call {call + 1}", constants if not call else None
                    )
                self._compare_inputs(case, folder, answer["after"])
        except (KeyError, TypeError, ValueError, AttributeError, OSError) as error:
            raise _Stop(WRONG, "answer", f"its process has written something else: {error}") from error
        if not self.verdict.kernels:
            raise _Stop(
                WRONG, "no kernel", "no kernel was launched; torch's own operations are not CUDA kernels here"
            )

    def _compare(
        self,
        case: _Case,
        folder: Path,
        outputs: Sequence[Mapping[str, Any]],
        where: str,
        constants: Mapping[str, int] | None,
    ) -> None:
        """Adds a reason for each output that is wrong; with ``constants`` also the row of the case."""
        found = [judged.read(folder, one) for one in outputs]
        where = f"with inputs {case.name}, {where}"
        forms, wanted = ([f"{one.dtype} {list(one.shape)}" for one in ones] for ones in (found, case.usual))
        if forms != wanted:
            self._refuse("shape", f"{where}, it returns {', '.join(forms)} instead of {', '.join(wanted)}")
            return
        errors = [_error(one, exact) for one, exact in zip(found, case.exact, strict=True)]
        worst = max(range(len(errors)), key=lambda i: errors[i] - case.bounds[i])
        if constants is not None:
            self.verdict.cases.append(Compared(constants, case.name, errors[worst], case.bounds[worst]))
        if not errors[worst] <= case.bounds[worst]:
            text = (
                "it is not finite" if errors[worst] == float("inf") else f"its error is {errors[worst]:.3g}"
            )
            self._refuse(
                "output", f"{where}, output {worst}: {text}; at most {case.bounds[worst]:.3g} is allowed"
            )

    def _compare_inputs(self, case: _Case, folder: Path, after: Sequence[Mapping[str, Any]]) -> None:
        for number, (before, now) in enumerate(zip(case.inputs, after, strict=True)):
            if "file" in before and judged.contents(folder, now["file"]) != case.contents[before["file"]]:
                self._refuse("inputs changed", f"with inputs {case.name}, it writes to its input {number}")

    def _further_run(
        self, folder: Path, init: Sequence[Any], case: _Case, treatment: str, options: Mapping[str, Any]
    ) -> None:
        result = self._run(folder, {**self._job(folder, init, [case], 1), "options": dict(options)})
        try:
            if treatment == "without kernels":
                if "error" not in result and self._is_right(case, folder, result["cases"][0]["calls"][0]):
                    message = "its outputs are right although its kernels do not run: the host computes them"
                    self._refuse("computed by the host", message)
                return
            _require_run(result, treatment)
            if treatment == "in another order":
                self._compare(case, folder, result["cases"][0]["calls"][0], treatment, None)
            else:
                self._add_findings(judged.contents(folder, judged.FINDINGS).decode())
        except (KeyError, TypeError, ValueError, AttributeError, IndexError, OSError) as error:
            raise _Stop(WRONG, "answer", f"its process has written something else: {error}") from error

    def _is_right(self, case: _Case, folder: Path, outputs: Sequence[Mapping[str, Any]]) -> bool:
        found = [judged.read(folder, one) for one in outputs]
        return len(found) == len(case.exact) and all(
            one.shape == exact.shape and _error(one, exact) <= bound
            for one, exact, bound in zip(found, case.exact, case.bounds, strict=True)
        )

    def _add_findings(self, text: str) -> None:
        findings, _ = parse_findings(text)
        for finding in likeliest_first(findings)[:_FINDINGS_SHOWN]:
            self._refuse(finding.kind, f"{finding.kernel}: {finding.message}")

    def _refuse(self, kind: str, message: str) -> None:
        self.verdict.reasons.append(Reason(kind, message))


def _require_run(result: Mapping[str, Any], treatment: str = "") -> None:
    where = f"{treatment}, " if treatment else ""
    if "error" in result:
        raise _Stop(WRONG, str(result["error"]), f"{where}{result.get('message', '')}"[:2000])
    if result.get("fault"):
        raise _Stop(WRONG, "fault", f"{where}{result['fault']}"[:2000])


def _error(found: Tensor, exact: Tensor) -> float:
    """The largest error of an output; infinite if an element is not finite."""
    if not found.numel():
        return 0.0
    difference = (found.double() - exact.double()).abs()
    return float(difference.max()) if bool(difference.isfinite().all()) else float("inf")


def _depend_on_inputs(cases: Sequence[_Case]) -> bool:
    """Whether some output differs between two cases by more than both bounds: a constant is then wrong."""
    return any(
        _error(one, two) > first.bounds[i] + other.bounds[i]
        for first in cases
        for other in cases
        for i, (one, two) in enumerate(zip(first.exact, other.exact, strict=True))
        if one.shape == two.shape
    )
