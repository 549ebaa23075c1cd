# SPDX-License-Identifier: Apache-2.0
"""Trees of LightGBM, scikit-learn and XGBoost, as onnxmltools and skl2onnx write them."""

from typing import Any

import numpy as np

from tests.network.acceptance.builders.export import ML, export, floats, nodes, words
from tests.network.real_models import Net

FEATURES, DEPTH = 6, 3


def _ensemble(rng: np.random.Generator, trees: int, mode: str) -> dict[str, Any]:
    """Return the nodes of full trees of one depth, numbered breadth first."""
    inner, total = 2**DEPTH - 1, 2 ** (DEPTH + 1) - 1
    place = np.arange(total)
    branch = place < inner
    count = trees * total
    return {
        "nodes_treeids": np.repeat(np.arange(trees), total).tolist(),
        "nodes_nodeids": np.tile(place, trees).tolist(),
        "nodes_featureids": rng.integers(0, FEATURES, count).tolist(),
        "nodes_modes": [mode if node else "LEAF" for node in branch] * trees,
        "nodes_values": rng.normal(0, 1, count).astype(np.float32).tolist(),
        "nodes_truenodeids": np.tile(np.where(branch, 2 * place + 1, 0), trees).tolist(),
        "nodes_falsenodeids": np.tile(np.where(branch, 2 * place + 2, 0), trees).tolist(),
        "nodes_missing_value_tracks_true": [0] * count,
        "nodes_hitrates": [1.0] * count,
    }


def _leaves(rng: np.random.Generator, trees: int, kind: str, outputs: int) -> dict[str, Any]:
    """Return the votes of the leaves; tree t votes for output t mod `outputs`."""
    inner, total = 2**DEPTH - 1, 2 ** (DEPTH + 1) - 1
    leaves = np.arange(inner, total)
    return {
        f"{kind}_treeids": np.repeat(np.arange(trees), len(leaves)).tolist(),
        f"{kind}_nodeids": np.tile(leaves, trees).tolist(),
        f"{kind}_ids": np.repeat(np.arange(trees) % outputs, len(leaves)).tolist(),
        f"{kind}_weights": rng.normal(0, 0.3, trees * len(leaves)).astype(np.float32).tolist(),
    }


def lightgbm_classifier() -> bytes:
    """LightGBM of three classes: TreeEnsembleClassifier with SOFTMAX, labels cast."""
    net = Net(81)
    label, shares = nodes(
        net,
        "TreeEnsembleClassifier",
        ["input"],
        2,
        domain=ML,
        post_transform="SOFTMAX",
        classlabels_int64s=[0, 1, 2],
        **_ensemble(net.rng, 12, "BRANCH_LEQ"),
        **_leaves(net.rng, 12, "class", 3),
    )
    outputs = {label: words("label", "N"), shares: floats("probabilities", "N", 3)}
    return export(net, [floats("input", "N", FEATURES)], outputs, 15, {ML: 1})


def random_forest_regressor() -> bytes:
    """RandomForestRegressor: AVERAGE written as small weights (skl2onnx)."""
    net = Net(82)
    out = net.node(
        "TreeEnsembleRegressor",
        "X",
        domain=ML,
        n_targets=1,
        post_transform="NONE",
        **_ensemble(net.rng, 20, "BRANCH_LEQ"),
        **_leaves(net.rng, 20, "target", 1),
    )
    return export(net, [floats("X", "N", FEATURES)], {out: floats("variable", "N", 1)}, 15, {ML: 3})


def xgboost_binary() -> bytes:
    """XGBoost with base score and BRANCH_LT, two classes from one score (onnxmltools)."""
    net = Net(83)
    label, shares = nodes(
        net,
        "TreeEnsembleClassifier",
        ["input"],
        2,
        domain=ML,
        post_transform="LOGISTIC",
        base_values=[0.1],
        classlabels_int64s=[0, 1],
        **_ensemble(net.rng, 8, "BRANCH_LT"),
        **_leaves(net.rng, 8, "class", 1),
    )
    outputs = {label: words("label", "N"), shares: floats("probabilities", "N", 2)}
    return export(net, [floats("input", "N", FEATURES)], outputs, 15, {ML: 1})


def hummingbird_trees() -> bytes:
    """Trees as products (hummingbird's GEMM strategy): Less, MatMul, Equal, MatMul."""
    net, leaves = Net(84), 8
    picks = np.eye(FEATURES, dtype=np.float32)[net.rng.integers(0, FEATURES, 7)].T
    chosen = net.node("MatMul", "input", net.constant(picks))
    left = net.node("Less", chosen, net.weights(7, fan=1))
    paths, counts = np.zeros((7, leaves), np.float32), np.zeros(leaves, np.float32)
    for leaf in range(leaves):
        node = 0
        for bit in (4, 2, 1):
            side = 0 if leaf & bit else 1
            paths[node, leaf] = 1 if side else -1
            counts[leaf] += side
            node = 2 * node + (1 if side else 2)
    walked = net.node("MatMul", net.node("Cast", left, to=1), net.constant(paths))
    reached = net.node("Cast", net.node("Equal", walked, net.constant(counts)), to=1)
    out = net.node("MatMul", reached, net.weights(leaves, 2, fan=1))
    return export(net, [floats("input", "N", FEATURES)], {out: floats("scores", "N", 2)}, 13)


MODELS = {
    "lightgbm_classifier": lightgbm_classifier,
    "random_forest_regressor": random_forest_regressor,
    "xgboost_binary": xgboost_binary,
    "hummingbird_trees": hummingbird_trees,
}
