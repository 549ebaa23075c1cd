# SPDX-License-Identifier: Apache-2.0
"""Pipelines of scikit-learn as skl2onnx writes them, with operators of ai.onnx.ml."""

import numpy as np
from onnx import TensorProto, ValueInfoProto, helper

from tests.network.acceptance.builders.export import ML, end, export, floats, nodes, words
from tests.network.real_models import Net

OPSETS = {ML: 3}
FEATURES, CLASSES = 8, 3


def _scaled(net: Net, value: str) -> str:
    """StandardScaler."""
    offset, scale = net.rng.normal(0, 1, FEATURES), net.rng.uniform(0.5, 2, FEATURES)
    return net.node("Scaler", value, domain=ML, offset=offset.tolist(), scale=scale.tolist())


def _linear_classifier(net: Net, value: str) -> tuple[str, str]:
    """LogisticRegression: labels, and probabilities that a Normalizer makes."""
    label, scores = nodes(
        net,
        "LinearClassifier",
        [value],
        2,
        domain=ML,
        classlabels_ints=list(range(CLASSES)),
        coefficients=net.rng.normal(0, 1, CLASSES * FEATURES).tolist(),
        intercepts=net.rng.normal(0, 1, CLASSES).tolist(),
        multi_class=1,
        post_transform="SOFTMAX",
    )
    return label, net.node("Normalizer", scores, domain=ML, norm="L1")


def _ends() -> list[ValueInfoProto]:
    return [floats("X", "rows", FEATURES)]


def scaler_logistic() -> bytes:
    """StandardScaler and LogisticRegression, zipmap=False: labels and probabilities."""
    net = Net(71)
    label, shares = _linear_classifier(net, _scaled(net, "X"))
    outputs = {label: words("label", "rows"), shares: floats("probabilities", "rows", CLASSES)}
    return export(net, _ends(), outputs, 15, OPSETS)


def scaler_logistic_zipmap() -> bytes:
    """The same with the ZipMap of the default: a sequence of dictionaries."""
    net = Net(72)
    label, shares = _linear_classifier(net, _scaled(net, "X"))
    label = net.node("Cast", label, to=TensorProto.INT64)
    zipped = net.node("ZipMap", shares, domain=ML, classlabels_int64s=list(range(CLASSES)))
    value = helper.make_tensor_type_proto(TensorProto.FLOAT, [])
    kind = helper.make_sequence_type_proto(helper.make_map_type_proto(TensorProto.INT64, value))
    outputs = {
        label: words("output_label", "rows"),
        zipped: helper.make_value_info("output_probability", kind),
    }
    return export(net, _ends(), outputs, 15, OPSETS)


def mlp_classifier() -> bytes:
    """MLPClassifier: products and Relus, Softmax, ArgMax and ArrayFeatureExtractor of labels."""
    net, value, inputs = Net(73), "X", FEATURES
    value = net.node("Cast", value, to=TensorProto.FLOAT)
    for width in (32, 16):
        product = net.node("MatMul", value, net.weights(inputs, width, fan=inputs))
        value = net.node("Relu", net.node("Add", product, net.weights(1, width, fan=100)))
        inputs = width
    product = net.node("MatMul", value, net.weights(inputs, CLASSES, fan=inputs))
    shares = net.node("Softmax", net.node("Add", product, net.weights(1, CLASSES, fan=4)), axis=-1)
    best = net.node("ArgMax", shares, axis=1)
    classes = net.constant(np.array([10, 20, 30]))
    chosen = net.node("ArrayFeatureExtractor", classes, best, domain=ML)
    label = net.node("Reshape", net.node("Cast", chosen, to=7), net.integers(-1))
    outputs = {label: words("label", "rows"), shares: floats("probabilities", "rows", CLASSES)}
    return export(net, _ends(), outputs, 15, OPSETS)


def text_labels() -> bytes:
    """LogisticRegression with words as labels: a string output."""
    net = Net(74)
    label, shares = nodes(
        net,
        "LinearClassifier",
        ["X"],
        2,
        domain=ML,
        classlabels_strings=["setosa", "versicolor", "virginica"],
        coefficients=net.rng.normal(0, 1, CLASSES * FEATURES).tolist(),
        intercepts=net.rng.normal(0, 1, CLASSES).tolist(),
        multi_class=1,
        post_transform="SOFTMAX",
    )
    outputs = {label: end("label", np.str_, "rows"), shares: floats("scores", "rows", CLASSES)}
    return export(net, _ends(), outputs, 15, OPSETS)


def categories() -> bytes:
    """ColumnTransformer: OneHotEncoder of words beside scaled numbers, then LinearRegressor."""
    net = Net(75)
    coded = net.node("OneHotEncoder", "colour", domain=ML, cats_strings=["red", "green"], zeros=1)
    flat = net.node("Reshape", coded, net.integers(-1, 2))
    joined = net.node("Concat", _scaled(net, "X"), flat, axis=1)
    out = net.node(
        "LinearRegressor",
        joined,
        domain=ML,
        coefficients=net.rng.normal(0, 1, FEATURES + 2).tolist(),
        intercepts=[0.5],
    )
    ends = [*_ends(), end("colour", np.str_, "rows", 1)]
    return export(net, ends, {out: floats("variable", "rows", 1)}, 15, OPSETS)


def support_vectors() -> bytes:
    """SVC with a radial kernel."""
    net, count = Net(76), 12
    label, scores = nodes(
        net,
        "SVMClassifier",
        ["X"],
        2,
        domain=ML,
        classlabels_ints=[0, 1],
        coefficients=net.rng.normal(0, 1, count).tolist(),
        kernel_params=[0.125, 0.0, 3.0],
        kernel_type="RBF",
        rho=[0.1],
        support_vectors=net.rng.normal(0, 1, count * FEATURES).tolist(),
        vectors_per_class=[count // 2, count // 2],
        post_transform="NONE",
    )
    outputs = {label: words("label", "rows"), scores: floats("scores", "rows", 2)}
    return export(net, _ends(), outputs, 15, OPSETS)


def kmeans() -> bytes:
    """KMeans: ReduceSumSquare, Gemm with the centres, Sqrt, ArgMin."""
    net = Net(77)
    centres = net.rng.normal(0, 1, (4, FEATURES)).astype(np.float32)
    squares = net.constant((centres**2).sum(1)[None])
    length = net.node("ReduceSumSquare", "X", axes=[1], keepdims=1)
    product = net.node("Gemm", "X", net.constant(centres), length, alpha=-2.0, transB=1)
    distance = net.node("Add", squares, product)
    label = net.node("ArgMin", distance, axis=1, keepdims=0)
    outputs = {
        label: words("label", "rows"),
        net.node("Sqrt", distance): floats("scores", "rows", 4),
    }
    return export(net, _ends(), outputs, 15, OPSETS)


def missing_values() -> bytes:
    """SimpleImputer, Binarizer and an LDA of products: NaN in the input is the case."""
    net = Net(78)
    filled = net.node(
        "Imputer",
        "X",
        domain=ML,
        imputed_value_floats=[0.5] * FEATURES,
        replaced_value_float=float("nan"),
    )
    product = net.node("MatMul", _scaled(net, filled), net.weights(FEATURES, CLASSES, fan=8))
    out = net.node("Softmax", net.node("Add", product, net.weights(CLASSES, fan=4)), axis=-1)
    return export(net, _ends(), {out: floats("probabilities", "rows", CLASSES)}, 15, OPSETS)


MODELS = {
    "scaler_logistic": scaler_logistic,
    "scaler_logistic_zipmap": scaler_logistic_zipmap,
    "mlp_classifier": mlp_classifier,
    "text_labels": text_labels,
    "categories": categories,
    "support_vectors": support_vectors,
    "kmeans": kmeans,
    "missing_values": missing_values,
}
