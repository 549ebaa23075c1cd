# SPDX-License-Identifier: Apache-2.0
"""Operators that models spell out: the nodes of a GELU or layer normalization are one call."""

import numpy as np
import pytest
from nnpa_network.placements import PLACEMENTS
from nnpa_network.program import Node

from tests.network.hosting import agree, normal, reference, text_model

MACHINES = ("telum1", "telum2")


# Spelled-out operators: the nodes between x and y, with c = 0.044715.
_GELU = "<float r = {1.41421356}, float o = {1.0}, float h = {0.5}, float t = {2.0}>"
SPELLED_OUT = {
    "erf": f"{_GELU} {{ d = Div(x, r) e = Erf(d) s = Add(e, o) m = Mul(x, s) y = Mul(m, h) }}",
    "erf, halved first":
        f"{_GELU} {{ g = Mul(h, x) d = Div(x, r) e = Erf(d) s = Add(o, e) y = Mul(g, s) }}",
    "erf, halved last":
        f"{_GELU} {{ d = Div(x, r) e = Erf(d) s = Add(e, o) m = Mul(s, x) y = Div(m, t) }}",
    "erf, factor": "<float r = {0.70710677}, float o = {1.0}, float h = {0.5}>"
        " { d = Mul(r, x) e = Erf(d) s = Add(e, o) m = Mul(s, h) y = Mul(x, m) }",
    "tanh": "<float k = {0.7978846}, float c = {0.044715}, float o = {1.0}, float h = {0.5},"
        " float n = {3.0}> { p = Pow(x, n) q = Mul(c, p) i = Add(x, q) a = Mul(k, i) e = Tanh(a)"
        " s = Add(o, e) m = Mul(h, x) y = Mul(m, s) }",
    "tanh, factored": "<float k = {0.7978846}, float c = {0.044715}, float o = {1.0},"
        " float h = {0.5}> { q = Mul(x, x) w = Mul(q, c) i = Add(w, o) b = Mul(x, k)"
        " a = Mul(b, i) e = Tanh(a) s = Add(e, o) m = Mul(x, s) y = Mul(m, h) }",
}  # fmt: skip
_NORM = "<float e = {0.00001}, float n = {2.0}, int64[1] a = {-1}>"
NORMALISED = {
    "layernorm": f"{_NORM} {{ m = ReduceMean(x, a) d = Sub(x, m) p = Pow(d, n)"
        " v = ReduceMean(p, a) u = Add(v, e) r = Sqrt(u) y = Div(d, r) }",
    "layernorm, scaled": "<float e = {0.00001}, int64[1] a = {1}, float[4] k = {1,2,3,4},"
        " float[4] b = {4,3,2,1}> { m = ReduceMean(x, a) d = Sub(x, m) p = Mul(d, d)"
        " v = ReduceMean(p, a) u = Add(e, v) r = Sqrt(u) f = Div(d, r) g = Mul(f, k)"
        " y = Add(b, g) }",
}  # fmt: skip
WIDE = {"x": 2 * normal(30, 4)}


def _spelled(text: str) -> str:
    return f"g (float[30,4] x) => (float[30,4] y) {text}"


def _functions(placed: tuple[Node, ...]) -> set[tuple[str, ...]]:
    return {node.functions for node in placed}


@pytest.mark.parametrize("name", SPELLED_OUT)
def test_gelu_spelled_out(name: str) -> None:
    """A spelled-out GELU is one call under `all`; its row says what the Erf form loses."""
    body = _spelled(SPELLED_OUT[name])
    result, placed = agree(body, WIDE, placement="all")
    assert dict(result.calls) == {
        "gelu": 1, "transform_ztensor_with_saturation": 1, "transform_origtensor": 1
    }  # fmt: skip
    assert _functions(placed) == {("gelu",)}
    first, *rest = placed
    assert first.reason.startswith("begins a Gelu that is spelled out")
    assert ("within 5e-4 of the Erf form" in first.reason) == name.startswith("erf")
    assert {node.reason for node in rest} == {f"part of {first.op_type}_0"}
    expected = reference(text_model(body), WIDE)[0]
    assert np.abs(result.outputs["y"] - expected).max() < 5e-4 + np.abs(expected).max() / 512


@pytest.mark.parametrize("name", NORMALISED)
def test_layer_normalization_spelled_out(name: str) -> None:
    """A spelled-out LayerNormalization is that under `all`, scale and bias with it."""
    result, placed = agree(_spelled(NORMALISED[name]), WIDE, placement="all")
    assert result.calls["layernorm"] == 1
    assert "sqrt" not in result.calls
    assert {node.device for node in placed} == {"accelerator"}
    assert len(_functions(placed)) == 1


@pytest.mark.parametrize("name", [*SPELLED_OUT, *NORMALISED])
def test_the_compiler_takes_spellings_apart(name: str) -> None:
    """Under `compiler` nodes go one by one; one on the host says what `all` does with it."""
    text = (SPELLED_OUT | NORMALISED)[name]
    result, placed = agree(_spelled(text), WIDE)
    assert not {"gelu", "layernorm"} & set(result.calls)
    whole = "LayerNormalization" if name in NORMALISED else "Gelu"
    left = [node for node in placed if node.device == "host"]
    assert all(
        node.reason.endswith(f"; --placement all takes it as part of a {whole}") for node in left
    )
    assert bool(left) == ("Tanh" not in text)


@pytest.mark.parametrize("name", [*SPELLED_OUT, *NORMALISED])
def test_spellings_on_telum_1(name: str) -> None:
    """Telum I has neither gelu nor layernorm: the placements are the same, bit for bit."""
    body = _spelled((SPELLED_OUT | NORMALISED)[name])
    results = [agree(body, WIDE, "telum1", placement=placement) for placement in PLACEMENTS]
    (first, left), (two, all_left) = results
    assert first.outputs["y"].tobytes() == two.outputs["y"].tobytes()
    assert [(node.device, node.reason) for node in left] == [
        (node.device, node.reason) for node in all_left
    ]


NEAR_MISSES = {
    "another constant": SPELLED_OUT["erf"].replace("1.41421356", "1.5"),
    "another summand": SPELLED_OUT["erf"].replace("o = {1.0}", "o = {1.25}"),
    "another factor": SPELLED_OUT["tanh"].replace("0.044715", "0.0456"),
    "another power": SPELLED_OUT["tanh"].replace("n = {3.0}", "n = {2.0}"),
    "another operand": SPELLED_OUT["erf"].replace("m = Mul(x, s)", "z = Tanh(x) m = Mul(z, s)"),
    "another axis": NORMALISED["layernorm"].replace("{-1}", "{0}"),
    "an axis each": "<float e = {0.00001}, int64[1] a = {1}, int64[1] c = {0}>"
        " { m = ReduceMean(x, a) d = Sub(x, m) p = Mul(d, d) v = ReduceMean(p, c) u = Add(v, e)"
        " r = Sqrt(u) y = Div(d, r) }",
    "no square": NORMALISED["layernorm"].replace("n = {2.0}", "n = {4.0}"),
    "another mean": NORMALISED["layernorm"].replace("m = ReduceMean(x, a)",
                                                    "t = Tanh(x) m = ReduceMean(t, a)"),
    "a negative epsilon": NORMALISED["layernorm"].replace("e = {0.00001}", "e = {-0.00001}"),
}  # fmt: skip


@pytest.mark.parametrize("name", NEAR_MISSES)
def test_near_misses_are_not_taken(name: str) -> None:
    """Nodes that differ from a spelling in an axis, constant or operand go one by one."""
    result, placed = agree(_spelled(NEAR_MISSES[name]), WIDE, placement="all")
    assert not {"gelu", "layernorm"} & set(result.calls)
    assert "--placement" not in "".join(node.reason for node in placed)


@pytest.mark.parametrize(
    ("name", "value"),
    [("erf", "e"), ("erf", "s"), ("tanh", "i"), ("layernorm", "d"), ("layernorm", "v")],
)
def test_values_that_are_read_elsewhere(name: str, value: str) -> None:
    """A spelling of which a value between is an output, or read elsewhere, goes node by node."""
    text = (SPELLED_OUT | NORMALISED)[name]
    shape = "30,1" if value == "v" else "30,4"
    for ends, more in (
        (f", float[{shape}] {value}", ""),
        (f", float[{shape}] o2", f"o2 = Tanh({value}) "),
    ):
        body = f"g (float[30,4] x) => (float[30,4] y{ends}) {text[:-1]}{more}}}"
        result, _ = agree(body, WIDE, placement="all")
        assert not {"gelu", "layernorm"} & set(result.calls)


def test_a_constant_that_widens() -> None:
    """A constant that broadcasts the operand to more elements is no part of a spelling."""
    text = NORMALISED["layernorm, scaled"].replace(
        "float[4] b = {4,3,2,1}", "float[2,1,4] b = {4,3,2,1,1,2,3,4}"
    )
    body = f"g (float[30,4] x) => (float[2,30,4] y) {text}"
    result, _ = agree(body, WIDE, placement="all")
    assert "layernorm" not in result.calls
