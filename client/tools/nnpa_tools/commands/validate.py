# SPDX-License-Identifier: Apache-2.0
"""`nnpa network validate`: measure a model's accuracy over a whole dataset."""

import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import TypedDict, Unpack

import click
from nnpa_wire.installation import pip_install

from nnpa_tools.commands.cores import jobs_option, ray_option
from nnpa_tools.commands.exit_codes import NOT_AS_PROMISED, reported
from nnpa_tools.commands.hosting import EPILOG, Hosting, hosting_options, loaded, options_of
from nnpa_tools.commands.outputs import new_file_option
from nnpa_tools.commands.progress import shown_progress
from nnpa_tools.commands.reaching import with_options
from nnpa_tools.commands.terminal import echo, json_option, print_json
from nnpa_tools.evaluation.datasets import Preprocessing, read_preprocessing
from nnpa_tools.evaluation.datasets.images import parse_preprocessing
from nnpa_tools.evaluation.datasets.opening import Source
from nnpa_tools.evaluation.engine import Engine, Measuring, evaluate, facts, save_rows
from nnpa_tools.evaluation.results import Accuracy
from nnpa_tools.evaluation.served import ServerEngine
from nnpa_tools.evaluation.tuning import tune

_OF_EXTRAS = ("onnx", "onnxruntime", "pebble", "threadpoolctl")


class Measured(TypedDict):
    """The options of `validate`, without the options of hosting."""

    data: Path | None
    labels: str | None
    samples: int | None
    seed: int
    batch: int | None
    node_rows: int
    int8: bool
    jobs: int | None
    ray: str | None
    html: Path | None
    worst: Path | None
    as_json: bool
    max_l2r: float | None
    max_drop: float | None
    resize: str | None
    crop: str | None
    mean: str | None
    std: str | None
    layout: str | None
    scale: float | None


def _share(_context: click.Context, parameter: click.Parameter, text: str | None) -> float | None:
    """Return a share of 0 to 1 from 0.5% or 0.005."""
    if text is None:
        return None
    try:
        share = float(text.removesuffix("%")) / (100 if text.endswith("%") else 1)
    except ValueError:
        share = -1.0
    if not 0 <= share <= 1:
        message = f"{text!r}, expected a share such as 0.5% or 0.005"
        raise click.BadParameter(message, param=parameter)
    return share


_measured = with_options(
    click.option(
        "--data",
        type=click.Path(path_type=Path),
        help="Rows for the inputs, with or without a batch axis: .npz, .npy, .csv, .parquet or a "
        "folder of images. Default: random rows.",
    ),
    click.option(
        "--labels",
        help="Expected answers: a file of whole numbers, the name of an array or column of the "
        'data, or "folders" for images in a folder per class.',
    ),
    click.option(
        "--samples",
        type=click.IntRange(1),
        help="Largest number of rows. Default: all of --data, 16 random rows.",
    ),
    click.option("--seed", default=0, show_default=True, help="Seed of random rows."),
    click.option(
        "--batch",
        type=click.IntRange(1, 4096),
        help="Rows of a batch. Default: by the size of a row.",
    ),
    click.option(
        "--node-rows",
        type=click.IntRange(0, 1024),
        default=16,
        show_default=True,
        help="Number of rows, from the first, that are measured node by node.",
    ),
    click.option(
        "--int8/--no-int8",
        default=True,
        show_default=True,
        help="Measure products by constant matrices in INT8 as well, as a what-if.",
    ),
    jobs_option(
        "Number of processes, or of tasks with --ray; not with --target. 1 measures in this "
        "process. Default: one for each core."
    ),
    ray_option("Measure on a Ray cluster"),
    new_file_option("--html", help="Write one self-contained page with plots."),
    new_file_option("--worst", help="Write the worst rows to this .npz."),
    json_option("Print the report as JSON."),
    click.option(
        "--max-l2r",
        type=float,
        help="Exit code 1 if the relative L2 error of any output is above this.",
    ),
    click.option(
        "--max-drop",
        callback=_share,
        metavar="SHARE",
        help="Exit code 1 if a machine loses more accuracy, or without labels changes more "
        "answers: 0.5% or 0.005.",
    ),
    click.option("--resize", metavar="S|H,W", help="Images: size of the shorter side, or of both."),
    click.option(
        "--crop", metavar="S|H,W", help="Images: size of the part in the middle that is kept."
    ),
    click.option("--mean", metavar="M,..", help="Images: subtracted, by channel."),
    click.option("--std", metavar="S,..", help="Images: then divided by, by channel."),
    click.option("--layout", metavar="NCHW|NHWC", help="Images: place of the channels."),
    click.option("--scale", type=float, help="Images: factor of pixels of 0 to 255."),
)


class _Options(Hosting, Measured):
    """All options of `validate`."""


@click.command(epilog=EPILOG)
@hosting_options
@_measured
def validate(model: Path, **options: Unpack[_Options]) -> None:
    """Measure a model on Telum I and II beside FP32 and INT8, over a whole dataset.

    The first line is the answer. With labels the report has accuracy, top-5 and confusion; without
    labels it counts the answers that differ from FP32. The figures of outputs are the figures of
    X-CUBE-AI's validate (ACC, RMSE, MAE, L2R, MEAN, STD, NSE, COS). For the first rows the report
    also has, for each node, the error of its inputs and the error that it adds.

    Options, or the JSON beside the model (model.json with resize, crop, mean, std, layout, scale),
    say how images become an input. The report prints it; nothing is guessed.
    """
    with reported():
        result = _measure(model, options)
    html = options["html"]
    if html is not None:
        html.write_text(result.html, encoding="utf-8")
    if options["as_json"]:
        print_json(result.report)
    else:
        echo(result.text, nl=False)
    errors = [row["l2r"] or 0.0 for row in result.table if not row["run"].endswith("int8")]
    worst, most = max(errors, default=0.0), options["max_l2r"]
    failed = most is not None and worst > most
    if failed:
        echo(f"L2R is {worst:.3g}, must be at most {most:g}.", err=True)
    limit = options["max_drop"]
    if limit is not None and result.drop > limit:
        echo(f"The drop is {result.drop:.3%}, must be at most {limit:.3%}.", err=True)
        failed = True
    if failed or result.report["unmeasured"]:
        sys.exit(NOT_AS_PROMISED)


def _measure(model: Path, options: _Options) -> Accuracy:
    target, worst = options["target"], options["worst"]
    choice = Measuring(
        batch=options["batch"],
        node_rows=options["node_rows"],
        int8=options["int8"],
        max_drop=options["max_drop"],
        html=options["html"] is not None,
    )
    about = {"model": model.name, **facts(here=target is None or target.startswith("unix:"))}
    source = _source(model, options)
    with _engine(model, source, options) as engine, shown_progress("rows") as progress:
        dataset = source.open(engine.inputs, engine.outputs)
        result = evaluate(engine, dataset, choice, about, progress)
    _tell_unmeasured(result)
    if worst is not None:
        save_rows(worst, dataset, result.worst)
    return result


@contextmanager
def _engine(model: Path, source: Source, options: _Options) -> Generator[Engine]:
    """Yield the engine of the options: a server, a cluster, or this machine."""
    jobs, ray = options["jobs"], options["ray"]
    if options["target"] is not None:
        if jobs is not None or ray is not None:
            name = "--jobs" if ray is None else "--ray"
            text = "the server at --target measures by itself; give one of the two"
            raise ValueError(f"{name}: {text}")
        with loaded(model, options) as net:
            yield ServerEngine(net)
        return
    try:
        tune()
        from nnpa_tools.evaluation.hosted import LocalEngine, RayEngine
    except ModuleNotFoundError as error:
        if error.name not in _OF_EXTRAS:
            raise
        text = f"{error.name} is not installed: {pip_install('server', 'onnx')}"
        raise ValueError(text) from error
    hosted = model, source, options["machine"], options_of(options)
    yield LocalEngine(*hosted, jobs) if ray is None else RayEngine(*hosted, jobs, address=ray)


def _tell_unmeasured(result: Accuracy) -> None:
    """Print on standard error the rows that a report lacks."""
    if not result.report["unmeasured"]:
        return
    from nnpa_network.reporting.accuracy import Unmeasured  # an engine of this process lost them

    clauses = "; ".join(str(Unmeasured(**rows)) for rows in result.report["unmeasured"])
    echo(f"{clauses[0].upper()}{clauses[1:]}.", err=True)


def _source(model: Path, options: _Options) -> Source:
    data = options["data"]
    return Source(
        None if data is None else data.absolute(),
        options["labels"],
        options["samples"],
        options["seed"],
        _preprocessing(model, options),
        dict(options_of(options).shapes or {}),
    )


def _preprocessing(model: Path, options: _Options) -> Preprocessing:
    """Return the preprocessing of the options, completed by the JSON beside the model."""
    if options["data"] is None or not options["data"].is_dir():
        return Preprocessing()
    lists = {
        name: text.split(",")
        for name, text in (
            ("resize", options["resize"]), ("crop", options["crop"]),
            ("mean", options["mean"]), ("std", options["std"]),
        )
        if text is not None
    }  # fmt: skip
    single = {"layout": options["layout"], "scale": options["scale"]}
    options_of_images = parse_preprocessing({**single, **lists}, "options of images")
    return options_of_images.over(read_preprocessing(model))
