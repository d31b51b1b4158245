"""A model as one file that runs without gcab: ONNX, for onnxruntime and its relatives, or a torch.export program.

Inside are what `predictor()` gives (for GCAB: one encoder, the shared cascade, gates folded into the decoder's
constants) and the calibration. The outputs are `logits` (n, classes), `probabilities` (n, classes) and `unknown` (n,):
the share of held-out known images that look more familiar. A file takes its place only after it gave the same answers
as the model itself.
"""

import importlib.util
import io
import json
import logging
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.export import ExportedProgram

from gcab.classifier.model import Classifier
from gcab.data.pictures import enough_for
from gcab.errors import GcabError
from gcab.export.composed import composed, onnx_encoder
from gcab.export.exported import Exported
from gcab.methods.method import Method
from gcab.runs.files import writing
from gcab.sizes import sides, size_name
from gcab.version import VERSION

if TYPE_CHECKING:
    from onnx import ModelProto

INPUT, OUTPUTS = "images", ("logits", "probabilities", "unknown")
# How far probabilities, and logits as a share of the largest, may be from the model's own: the best class is then the
# same, unless the second best is as close as that.
LIMIT = 1e-4
UNKNOWN_LIMIT = 0.05  # a share of images, which moves in steps
OLDEST_OPSET = 18  # what the exporter writes; onnx then converts to later ones
MOST_BYTES = 2**31 - 2**20  # of weights in one ONNX file, whose format ends at 2 GB
METADATA_FILE = "gcab.json"  # in a torch.export program

Run = Callable[[Tensor], Sequence[Tensor]]  # images -> logits, probabilities, unknown


@dataclass(frozen=True)
class Checked:
    """An exported file, and how far its answers to random images are from the model's own."""

    path: Path
    metadata: Mapping[str, str]
    probabilities: float  # largest difference
    logits: float  # largest difference, as a share of the largest logit


def export_onnx(
    model: Classifier, path: str | Path, with_preprocessing: bool = False, opset: int | None = None
) -> Checked:
    """Write one ONNX file that takes any number of images and carries `describe` as its metadata.

    With preprocessing the input is photos of any one size as Pillow opens them: bytes (n, height, width, 3).
    This is all it takes to run it:

        import json, numpy, onnxruntime, PIL.Image, PIL.ImageOps
        session = onnxruntime.InferenceSession("birds.onnx")
        metadata = session.get_modelmeta().custom_metadata_map
        names, size = json.loads(metadata["classes"]), max(map(int, metadata["image_size"].split("x")))
        photo = PIL.Image.open("some.jpg")
        photo.draft("RGB", (2 * size, 2 * size))  # a JPEG is scaled while it is decoded, as gcab does
        photo = numpy.asarray(PIL.ImageOps.exif_transpose(photo).convert("RGB"))[None]
        logits, probabilities, unknown = session.run(None, {"images": photo})
        print(names[probabilities[0].argmax()], probabilities[0].max())
    """
    target = file_at(path)
    require_onnx(opset)
    module, metadata = Exported(model, with_preprocessing), describe(model, with_preprocessing)
    if sum(tensor.nbytes for tensor in (*module.parameters(), *module.buffers())) > MOST_BYTES:
        raise GcabError("this model is larger than the 2 GB that one ONNX file holds: export it with --format torch.")

    def translate(program: ExportedProgram, taken: str, answers: tuple[str, ...]) -> "ModelProto":
        translated = torch.onnx.export(
            program, input_names=[taken], output_names=list(answers), opset_version=opset, verbose=False
        )
        assert translated is not None
        return translated.model_proto

    encoder = onnx_encoder(module.predictor)
    with translating(model.method):
        if encoder is None:
            graph = translate(module.program(strict=False), INPUT, OUTPUTS)  # the exporter drops what is not used
        else:
            graph = composed(module, encoder, (INPUT, OUTPUTS), translate)
        graph = tidied(graph, metadata, module.dimensions)
    return save_checked(target, graph.SerializeToString(), module, metadata, open_onnx)


def export_torch(model: Classifier, path: str | Path, with_preprocessing: bool = False) -> Checked:
    """Write a program for `torch.export.load`, with `describe` as JSON in its extra file `gcab.json`."""
    target, file = file_at(path), io.BytesIO()
    if onnx_encoder(model.method) is not None:
        raise GcabError("this model's encoder is an ONNX graph, which torch.export cannot hold: export it to .onnx.")
    module, metadata = Exported(model, with_preprocessing), describe(model, with_preprocessing)
    with translating(model.method):
        program = module.program(strict=True)
        for node in program.graph.nodes:
            node.meta.pop("stack_trace", None)  # it names folders of this machine
        torch.export.save(program, file, extra_files={METADATA_FILE: json.dumps(metadata, indent=1)})
    return save_checked(target, file.getvalue(), module, metadata, open_torch)


def describe(model: Classifier, with_preprocessing: bool) -> dict[str, str]:
    """The metadata a consumer of the file needs; lists are JSON."""
    setting, size = model.method.setting, model.image_size
    if with_preprocessing:
        taken = "uint8 (n, height, width, 3): RGB photos of any one size; cut, resized and normalised inside"
    else:
        taken = "float32 (n, 3, {}, {}): RGB, (pixel / 255 - mean) / std".format(*sides(size))
    return {
        "gcab": VERSION,
        "method": model.config.method,
        "classes": json.dumps(model.classes),
        "tasks": json.dumps([task.index + 1 for task in model.tasks for _ in task.names]),  # of each class, from 1
        "input": taken,
        "layout": "NHWC" if with_preprocessing else "NCHW",
        "image_size": size_name(size),
        "jpeg": f"at 1/8, 1/4 or 1/2 of its size if that leaves {enough_for(size)} pixels a side; turned by EXIF",
        "mean": json.dumps(setting.mean),
        "std": json.dumps(setting.std),
        "temperature": repr(model.calibration.temperature),
        "calibration_images": str(model.calibration.images),  # 0: not calibrated; below 20 `unknown` is always 0
    }


def file_at(path: str | Path) -> Path:
    """The validated output path, checked before any work is done."""
    if Path(path).is_dir():
        raise GcabError(f"{path} is a folder: give the name of a file.")
    return Path(path)


def require_onnx(opset: int | None) -> None:
    """Raise early if the packages of the extra `export` are missing."""
    for name in ("onnx", "onnxscript", "onnxruntime"):
        if importlib.util.find_spec(name) is None:
            raise GcabError(f"export to ONNX needs {name}, which is not installed: pip install 'gcab[export]'.")
    if opset is not None:
        from onnx.defs import onnx_opset_version

        if not OLDEST_OPSET <= opset <= onnx_opset_version():
            raise GcabError(f"opset {opset} is not available: give {OLDEST_OPSET} to {onnx_opset_version()}.")


@contextmanager
def translating(method: Method) -> Iterator[None]:
    """A context manager that silences the exporter and turns its exceptions into a `GcabError`."""
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    except GcabError:
        raise
    except Exception as problem:  # the exporter raises anything on code that it cannot follow
        reason = str(problem).strip().partition("\n")[0]
        name = type(method).__name__
        raise GcabError(f"the method {name} cannot be exported ({reason}): its predict is not traceable.") from problem
    finally:
        logging.disable(before)


def tidied(graph: "ModelProto", metadata: Mapping[str, str], dimensions: Mapping[int, str]) -> "ModelProto":
    """Name the free dimensions, add the metadata, and leave out where each operation stood in the source code."""
    for part in (*graph.graph.node, *graph.graph.value_info, *graph.graph.input, *graph.graph.output, graph.graph):
        del part.metadata_props[:]
        part.doc_string = ""
    shape = graph.graph.input[0].type.tensor_type.shape
    for index, name in dimensions.items():
        shape.dim[index].dim_param = name
    for output in graph.graph.output:
        output.type.tensor_type.shape.dim[0].dim_param = dimensions[0]
    graph.producer_name, graph.producer_version, graph.doc_string = "gcab", VERSION, metadata["input"]
    del graph.metadata_props[:]
    for key, value in metadata.items():
        graph.metadata_props.add(key=key, value=value)
    return graph


def open_onnx(path: str) -> Run:
    import onnxruntime  # type: ignore[import-untyped]

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4  # problems are raised; they need not be printed as well
    session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    return lambda images: [torch.from_numpy(output) for output in session.run(OUTPUTS, {INPUT: images.numpy()})]


def open_torch(path: str) -> Run:
    with Path(path).open("rb") as file:
        return torch.export.load(file).module()


def save_checked(
    path: Path, content: bytes, module: Exported, metadata: Mapping[str, str], opened: Callable[[str], Run]
) -> Checked:
    """Write a temporary file, run it, and rename it to its place if its answers are right."""
    with writing(path) as file:
        file.write(content)
        file.flush()
        try:
            run, own = opened(file.name), [module.expected(images) for images in module.samples()]
            other = [run(images) for images in module.samples()]
        except Exception as problem:  # as many kinds as there are runtimes
            reason = str(problem).strip().partition("\n")[0]
            raise GcabError(f"{path} was not written, as the exported model does not run ({reason}).") from problem
        probabilities, unknown = largest_difference(own, other, 1), largest_difference(own, other, 2)
        logits = largest_difference(own, other, 0) / max(1e-9, *(float(answers[0].abs().max()) for answers in own))
        if not (probabilities <= LIMIT and logits <= LIMIT and unknown <= UNKNOWN_LIMIT):
            raise GcabError(
                f"{path} was not written, as the exported model answers differently: probabilities by "
                f"{probabilities:.1g}, logits by {logits:.1g} of the largest, unknown by {unknown:.1g}."
            )
    return Checked(path, metadata, probabilities, logits)


def largest_difference(own: Sequence[Sequence[Tensor]], other: Sequence[Sequence[Tensor]], output: int) -> float:
    """The largest difference over all samples; infinite where a shape differs, NaN where an output is."""
    pairs = [(a[output], b[output]) for a, b in zip(own, other, strict=True)]
    if any(a.shape != b.shape for a, b in pairs):
        return float("inf")
    return float(torch.stack([(a - b).abs().max() for a, b in pairs]).max())
