# SPDX-License-Identifier: Apache-2.0
"""Programs for further sizes that are derived from lowered ones: the same bytes, or none."""

import gc
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import lru_cache
from hashlib import sha256

import numpy as np
import pytest
from nnpa.network.v1 import program_pb2 as pb
from nnpa_emulator import Guest, find_machine
from nnpa_network.importing.lines import Line, NotAffine, concrete_of
from nnpa_network.importing.onnx_import import ImportOptions, OnnxModel, import_onnx
from nnpa_network.program import ModelRefused, Program
from nnpa_network.running.results import Result
from nnpa_network.running.run_buffers import kept_bytes
from nnpa_server.network import Pools, make_pools
from nnpa_server.network.program_codec import encode
from nnpa_server.network.worker_plan import WorkerPlan
from nnpa_server.network.workers import make_workers
from nnpa_server.sandbox import confinement

from tests.bench.generation import decoder, first_feeds, generate
from tests.network.acceptance.builders import BUILDERS
from tests.network.acceptance.listing import models
from tests.network.hosting import Array, load, text_model

Shapes = Mapping[str, tuple[int, ...]]
PLAIN = frozenset[str]()
MAX_BYTES = ImportOptions().max_bytes


def _past(length: int) -> Shapes:
    return {name: array.shape for name, array in first_feeds(length).items()}


def _listed(name: str, symbol: str, size: int) -> Shapes:
    """Return the shapes that the list has for a model, with one free dim of another size."""
    ports = load(BUILDERS[name]()).inputs
    shapes = {port: feed.shape for port, feed in models()[name].inputs.items()}
    return {
        port.name: tuple(
            size if symbol == each else dim
            for each, dim in zip(port.symbols, shapes[port.name], strict=True)
        )
        for port in ports
    }


GROWING: dict[str, tuple[Callable[[], bytes], Callable[[int], Shapes]]] = {
    "decoder, opset 18": (lambda: decoder(18), _past),
    "decoder, opset 23": (lambda: decoder(23), _past),
    "gpt2_with_past": (
        BUILDERS["gpt2_with_past"], lambda size: _listed("gpt2_with_past", "past_length", size)
    ),
    "half_precision": (
        BUILDERS["half_precision"], lambda size: _listed("half_precision", "batch", size)
    ),
    "hummingbird_trees": (
        BUILDERS["hummingbird_trees"], lambda size: _listed("hummingbird_trees", "N", size)
    ),
}  # fmt: skip


def _line(model: OnnxModel, shapes: Callable[[int], Shapes], *sizes: int) -> Line:
    programs = [model.specialise(shapes(size)) for size in sizes]
    points = [(concrete_of(program), program) for program in programs]
    return Line(points, model.guest, MAX_BYTES)


def _same(program: Program, other: Program) -> bool:
    """Tell whether programs are equal in what goes over the wire, contents of constants too."""
    (text, arrays), (other_text, others) = encode(program), encode(other)
    return pb.Program.FromString(text) == pb.Program.FromString(other_text) and [
        (array.dtype, array.shape, array.tobytes()) for array in arrays
    ] == [(array.dtype, array.shape, array.tobytes()) for array in others]


def _derived(name: str, machine: str, sizes: range, **options: object) -> list[int]:
    """Assert that each program is None or the lowered one; return the sizes that have one."""
    build, shapes = GROWING[name]
    model = load(build(), machine, **options)
    line, found = _line(model, shapes, 9, 10, 11), list[int]()
    for size in sizes:
        lowered = model.specialise(shapes(size))
        program = line.program(concrete_of(lowered))
        if program is not None:
            found.append(size)
            assert _same(program, lowered), size
    return found


@pytest.mark.parametrize("name", GROWING)
def test_a_derived_program_is_the_lowered_one(name: str) -> None:
    """A derived program equals that of lowering for its size; most sizes have one."""
    assert len(_derived(name, "telum2", range(1, 70, 4))) > 14


@pytest.mark.heavy
@pytest.mark.parametrize(("machine", "placement"), [("telum1", "all"), ("telum2", "compiler")])
@pytest.mark.parametrize("name", GROWING)
def test_all_sizes(name: str, machine: str, placement: str) -> None:
    """The law holds for each size up to 200, on both machines, with either placement."""
    assert len(_derived(name, machine, range(1, 201), placement=placement)) > 180


def test_sizes_at_which_constants_become_one() -> None:
    """Where a bias of a growing product has the shape of another, lowering makes one of both."""
    model = load(decoder(18))
    line = _line(model, _past, 9, 10, 11)
    programs = [model.specialise(_past(size)) for size in (62, 63, 64)]
    counts = [len(program.constants) for program in programs]
    assert counts[0] == counts[2] > counts[1]
    derived = [line.program(concrete_of(program)) for program in programs]
    assert [program is None for program in derived] == [False, True, False]


NO_LINES = {
    "a bound of a size": """m (float[n] x) => (float[k] y) <int64[1] a = {0}, int64[1] b = {64}>
        { y = Slice (x, a, b) }""",
    "a rounded size": """m (float[1,1,8,n] x) => (float[1,1,p,q] y)
        { y = MaxPool <kernel_shape = [1, 64], strides = [1, 64]> (x) }""",
    "a row of a table": """m (float[n] x) => (float[n] y) <float[16] t = {0, 0, 0, 0}> {
        s = Shape (x)  r = Gather (t, s)  y = Add (x, r) }""",
    "a quotient": """m (float[n] x) => (float[n] y) <int64[1] d = {64}, int64 i = {0}> {
        s = Shape (x)  q = Div (s, d)  c = Gather (q, i)  f = Cast <to = 1> (c)
        y = Add (x, f) }""",
    "a branch": """m (float[n] x, bool b) => (float[n] y) {
        y = If (b) <then_branch = t () => (float[n] v) { v = Neg (x) },
                    else_branch = e () => (float[n] w) { w = Abs (x) }> }""",
}


@pytest.mark.parametrize("name", NO_LINES)
def test_no_line_where_sizes_are_bounded(name: str) -> None:
    """What three sizes do not show keeps a model from having lines, where they agree, too."""
    body = NO_LINES[name].replace("{0, 0, 0, 0}", f"{{{', '.join(['0'] * 16)}}}")
    model = load(text_model(body))

    def shapes(size: int) -> Shapes:
        sized = {port.name: port.shape for port in model.inputs}
        return {at: tuple(size if dim < 0 else dim for dim in shape) for at, shape in sized.items()}

    with pytest.raises(NotAffine):
        _line(model, shapes, 4, 5, 6)


def test_constants_that_sizes_make() -> None:
    """A constant may round to one number at three large sizes, and to another at others."""
    model = load(
        text_model("""m (float[n] x) => (float[n] y) {
        s = Shape (x)  c = ConstantOfShape (s)  m = Softmax (c)  y = Add (x, m) }""")
    )
    with pytest.raises(NotAffine, match="Softmax"):
        _line(model, lambda size: {"x": (size,)}, 20000, 20001, 20002)


def test_limits_of_the_machine() -> None:
    """Beyond the greatest dim or the limit of bytes there is no derived program."""
    model = load(text_model("m (float[n, 4] x) => (float[n, 4] y) { y = Relu (x) }"), "telum1")
    line = _line(model, lambda size: {"x": (size, 4)}, 9, 10, 11)
    assert line.program((("x", (32768, 4)),)) is not None
    assert line.program((("x", (32769, 4)),)) is None
    assert line.program((("x", (20, 5)),)) is None
    assert line.program((("other", (20, 4)),)) is None


@pytest.fixture(scope="module", params=[None, pytest.param("off", marks=pytest.mark.heavy), "auto"])
def run(request: pytest.FixtureRequest) -> Iterator[Callable[..., Callable[..., Result]]]:
    """What runs a model: in this process, or by a server's plan without and with workers."""
    pools: Pools | None = None
    if request.param == "auto":
        if not confinement.is_linux():
            pytest.skip("workers need Linux")
        pools = make_pools("auto")

    def runner(
        data: bytes, machine: str = "telum2", options: ImportOptions | None = None
    ) -> Callable[..., Result]:
        guest, options = Guest(find_machine(machine)), options or ImportOptions()
        if request.param is None:
            return import_onnx(data, guest, options).run
        plan = WorkerPlan(data, guest, options, make_workers(pools))

        def run(feeds: Mapping[str, Array]) -> Result:
            return plan.executor({name: each.shape for name, each in feeds.items()}).run(feeds)

        return run

    yield runner
    if pools is not None:
        pools.close()


def _facts(result: Result) -> tuple[object, ...]:
    digest = sha256()
    for name, array in sorted(result.outputs.items()):
        digest.update(f"{name} {array.dtype} {array.shape}".encode() + array.tobytes())
    warnings = [(each.node, each.status, each.count) for each in result.violations]
    return digest.digest(), warnings, result.nans, dict(result.calls)


def _tokens(run: Callable[..., Result], tokens: int, length: int) -> list[object]:
    """Return the facts of each token that a decoder gives."""
    facts = list[object]()

    def token(feeds: Mapping[str, Array]) -> Mapping[str, Array]:
        result = run(feeds)
        facts.append(_facts(result))
        return result.outputs

    generate(token, tokens, length)
    return facts


@lru_cache(maxsize=8)
def _plain_tokens(opset: int, machine: str, tokens: int, length: int) -> list[object]:
    return _tokens(load(decoder(opset), machine, shortcuts=PLAIN).run, tokens, length)


@pytest.mark.parametrize("opset", [18, 23])
def test_tokens_have_the_bytes_of_the_plain_path(
    opset: int, run: Callable[..., Callable[..., Result]]
) -> None:
    """Each token of a growing cache gives outputs, warnings and calls of the plain path."""
    expected = _plain_tokens(opset, "telum2", 8, 59)
    assert _tokens(run(decoder(opset)), 8, 59) == expected


@pytest.mark.heavy
@pytest.mark.parametrize("machine", ["telum1", "telum2"])
@pytest.mark.parametrize("opset", [18, 23])
def test_two_hundred_tokens(
    opset: int, machine: str, run: Callable[..., Callable[..., Result]]
) -> None:
    """The same for 200 tokens on both machines."""
    expected = _plain_tokens(opset, machine, 200, 1)
    assert _tokens(run(decoder(opset), machine), 200, 1) == expected


def test_values_that_are_no_numbers(run: Callable[..., Callable[..., Result]]) -> None:
    """The first run of a derived program warns of what it meets, as the plain path does."""
    data = text_model("m (float[n, 4] x) => (float[n, 4] y) { a = Exp (x)  y = Log (a) }")
    plain = load(data, shortcuts=PLAIN)
    quick = run(data)
    for size in range(5, 12):
        x = np.linspace(-4, 4, 4 * size, dtype=np.float32).reshape(size, 4)
        if size > 7:  # derived, of steps that ran clean
            x[size // 2] = [np.nan, np.inf, 3e38, -np.inf]
        expected = plain.run({"x": x})
        assert bool(expected.violations) == (size > 7)
        assert _facts(quick({"x": x})) == _facts(expected)


def test_lowering_runs_three_times(monkeypatch: pytest.MonkeyPatch) -> None:
    """Programs on a line are not lowered, and without the shortcut all are."""
    lowered = list[object]()
    lower = getattr(OnnxModel, "_lower")  # noqa: B009 - what is counted

    def counted(model: OnnxModel, shapes: object) -> Program:
        lowered.append(shapes)
        program: Program = lower(model, shapes)
        return program

    monkeypatch.setattr(OnnxModel, "_lower", counted)
    for shortcuts, count in ((ImportOptions().shortcuts, 3), (PLAIN, 10)):
        lowered.clear()
        model = load(decoder(23), shortcuts=shortcuts)
        for length in range(10, 20):
            model.executor(_past(length))
        assert len(lowered) == count


def test_derived_programs_share_an_arena() -> None:
    """What runs of many sizes keep is one arena, with room for what grows."""
    gc.collect()
    model, sizes = load(decoder(23)), list[int]()
    for length in range(66, 90):
        model.run(first_feeds(length))
        sizes.append(kept_bytes())
    assert len({*sizes[3:]}) == 1


def test_programs_are_bounded_by_bytes() -> None:
    """The oldest programs go where all take more than the limit; the newest stays."""
    options = ImportOptions(max_programs=100, max_program_bytes=1 << 20)
    model = import_onnx(decoder(23), Guest(find_machine("telum2")), options)
    for length in range(10, 40):
        model.executor(_past(length))
    pool = getattr(model, "_pool")  # noqa: B009 - what is bounded
    assert model.dropped == 3
    assert pool.nbytes <= 1 << 20
    assert pool.find(concrete_of(model.executor(_past(38)).program)) is not None
    assert pool.find(concrete_of(model.specialise(_past(12)))) is None
    assert model.executor(_past(39)) is model.executor(_past(39))


def test_a_refused_size_is_refused(run: Callable[..., Callable[..., Result]]) -> None:
    """A size that the model does not take is refused after others were derived."""
    data = text_model("""m (float[n] x) => (float[k, 3] y) <int64[2] s = {-1, 3}>
        { r = Reshape (x, s)  y = Relu (r) }""")
    quick = run(data)
    for size in (12, 15, 18, 21, 24):
        assert quick({"x": np.ones(size, np.float32)}).outputs["y"].shape == (size // 3, 3)
    with pytest.raises(ModelRefused):
        quick({"x": np.ones(25, np.float32)})


@pytest.mark.heavy
def test_a_worker_that_was_ended() -> None:
    """A new worker gets a derived program whole."""
    pools = make_pools("auto")
    if pools is None:
        pytest.skip("workers need Linux")
    workers = make_workers(pools)
    plan = WorkerPlan(decoder(23), Guest(find_machine("telum2")), ImportOptions(), workers)
    reference = load(decoder(23))
    for length in range(20, 26):
        feeds = first_feeds(length)
        result = plan.executor(_past(length)).run(feeds)
        assert _facts(result) == _facts(reference.run(feeds))
        if length > 22:
            workers.end_idle()
            assert _facts(plan.executor(_past(length)).run(feeds)) == _facts(result)
    pools.close()


def test_programs_of_strangers_draw_no_line() -> None:
    """Programs that differ in more than sizes, or in sizes that do not go together, have none."""
    model = load(decoder(23))
    programs = [model.specialise(_past(size)) for size in (9, 10, 11)]
    third = programs[2]
    number = next(at for at, info in third.arrays.items() if 11 in info.shape)
    info = third.arrays[number]
    for changed in (
        replace(third, steps=third.steps[:-1]),
        replace(third, arrays={**third.arrays, number: replace(info, shape=(1, 2, 3, 4))}),
        replace(third, constants={}),
        replace(third, output_ids=third.output_ids[::-1]),
    ):
        points = [(concrete_of(each), each) for each in (*programs[:2], changed)]
        with pytest.raises(NotAffine):
            Line(points, model.guest, MAX_BYTES)
