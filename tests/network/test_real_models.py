# SPDX-License-Identifier: Apache-2.0
"""Real networks beside ONNX Runtime in FP32, and where their nodes went."""

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from nnpa_network.lowering.placement import placement_report

from tests.network import real_models as models
from tests.network.baselines import compare_baseline, headline, heavy, write_baseline
from tests.network.hosting import Array, load, reference

PLACEMENTS = Path(__file__).parent / "placements"
LIGHT = Path(onnx.__file__).parent / "backend" / "test" / "data" / "light"
MOST_EXCLUDED = 0.05
REAL: Mapping[str, tuple[Callable[[], bytes], Callable[[int], Mapping[str, Array]], int]] = {
    "residual_cnn": (models.residual_cnn, models.images, 64),
    "encoder": (models.encoder, models.sentences, 4),
    "tagger": (models.tagger, models.words, 16),
}


def _margins(logits: Array) -> Array:
    ranked = np.sort(logits, axis=-1)
    return np.asarray(ranked[..., -1] - ranked[..., -2])


@pytest.mark.parametrize("machine", ["telum1", "telum2"])
@pytest.mark.parametrize("name", REAL)
def test_top1_agrees_within_the_error(
    name: str, machine: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Top-1 agrees wherever FP32's margin exceeds twice the largest error; few are excluded."""
    make, draw, count = REAL[name]
    model, feeds = make(), draw(count)
    (expected,) = reference(model, feeds)
    result = load(model, machine).run(feeds)
    (got,) = result.outputs.values()
    error = float(np.abs(got - expected).max())
    decided = _margins(expected) > 2 * error
    excluded = 1 - float(decided.mean())
    with capsys.disabled():
        print(f"\n{name} on {machine}: largest error {error:.4f}, excluded {excluded:.1%}")
    assert not result.violations
    assert excluded < MOST_EXCLUDED
    assert np.array_equal(got.argmax(-1)[decided], expected.argmax(-1)[decided])


@pytest.mark.parametrize("machine", ["telum1", "telum2"])
@pytest.mark.parametrize("name", REAL)
def test_placement_baseline(name: str, machine: str) -> None:
    """No node of a real network changes its device without the baseline saying so."""
    make, draw, count = REAL[name]
    shapes = {key: array.shape for key, array in draw(count).items()}
    report = placement_report(load(make(), machine).specialise(shapes))
    path = PLACEMENTS / f"{name}-{machine}.tsv"
    if os.environ.get("NNPA_WRITE_PLACEMENTS"):
        path.write_text(write_baseline(report))
    assert not compare_baseline(report, path.read_text())
    assert not heavy(report)


def test_masked_words_change_nothing() -> None:
    """The ids of masked words do not change an encoder's outputs for the other words."""
    model, feeds = models.encoder(), dict(models.sentences(2))
    masked = feeds["attention_mask"] == 0
    changed = feeds["input_ids"].copy()
    changed[masked] = (changed[masked] + 1) % models.WORDS
    hosted = load(model)
    (first,) = hosted.run(feeds).outputs.values()
    (second,) = hosted.run({**feeds, "input_ids": changed}).outputs.values()
    assert np.array_equal(first[~masked], second[~masked])


def _light_feeds(model: Any) -> dict[str, Array]:
    rng = np.random.default_rng(1)
    return {
        port.name: rng.normal(0, 1, [max(dim, 1) for dim in port.shape]).astype(port.dtype)
        for port in model.inputs
    }


@pytest.mark.heavy
@pytest.mark.parametrize("path", sorted(LIGHT.glob("*.onnx")), ids=lambda path: path.stem)
def test_light_models(path: Path) -> None:
    """A light model of the onnx wheel runs as in FP32, or says which node overflows first."""
    model = path.read_bytes()
    hosted = load(model)
    feeds = _light_feeds(hosted)
    (expected,) = reference(model, feeds)
    program = hosted.specialise({name: array.shape for name, array in feeds.items()})
    result = hosted.run(feeds)
    (got,) = result.outputs.values()
    print(headline(placement_report(program))[:200])
    if not result.violations:
        np.testing.assert_allclose(got, expected, rtol=0.05, atol=0.01)
        return
    first = result.violations[0]
    node = program.nodes[first.node]
    assert node.device == "accelerator"
    assert first.violation is not None
    assert first.violation.operands
    intermediate = _fp32_value(model, node.inputs[0], feeds)
    output = _fp32_value(model, node.outputs[0], feeds)
    assert max(np.abs(intermediate).max(), np.abs(output).max()) > 1e9


def _fp32_value(model: bytes, name: str, feeds: Mapping[str, Array]) -> Array:
    """Return an intermediate value of a model as ONNX Runtime computes it."""
    proto = onnx.ModelProto.FromString(model)
    if name in feeds:
        return feeds[name]
    inner = onnx.ValueInfoProto(name=name)
    del proto.graph.output[:]
    proto.graph.output.append(inner)
    return reference(proto.SerializeToString(), feeds)[0]
