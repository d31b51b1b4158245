"""An ONNX file with one image input as an encoder, run by onnxruntime on the CPU.

Beside NAME.onnx may lie NAME.onnx.json, with entries as in `preprocessor_config.json`, and also
"output": a tensor of the graph to take as features, where the file ends in something else; "licence"; "origin".
"""

import hashlib
import importlib.util
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import torch
from torch import Tensor

from gcab.errors import GcabError
from gcab.model.encoder import EncoderConfig
from gcab.pretrained.description import ONNX, Description, PretrainedWeights
from gcab.pretrained.encoder import PretrainedEncoder
from gcab.pretrained.licence import UNKNOWN, licence_in
from gcab.pretrained.preprocessing import IMAGENET, Preprocessing, find_preprocessing, read_json

if TYPE_CHECKING:
    from onnx import ModelProto

USUAL_SIDE, USUAL_RESIZE = 224, 256  # of encoders for photos
FEWEST = 8  # numbers an image: fewer are the output of a classifier, not features
MOST_BYTES = 2**31 - 2**20  # of one ONNX file


@dataclass(frozen=True)
class GraphShape:
    """The sizes and the names needed to run the graph."""

    bytes: int  # of the file
    input: str
    output: str
    features: int  # numbers an image


class OnnxEncoder(PretrainedEncoder):
    """A graph as it was found: its file is a tensor of bytes, so that the model needs no other file."""

    purposes: ClassVar[dict[str, str]] = {"file": "pretrained encoder: the ONNX file it was found in; never learns"}
    on_host: ClassVar[bool] = True
    file: Tensor

    def __init__(self, config: EncoderConfig, description: Description) -> None:
        self.shape = GraphShape(**description.shape)
        super().__init__(config, description, self.shape.features)
        self.register_buffer("file", torch.zeros(self.shape.bytes, dtype=torch.uint8))
        self.graph = Graph()
        self.eval()

    @property
    def summary_width(self) -> int:
        return self.shape.features

    def summary(self, images: Tensor) -> Tensor:
        if images.is_meta:  # operations are only counted
            return images.new_empty(len(images), self.shape.features)
        return flattened(self.raw(self.prepared(images))).to(images.device)

    def raw(self, prepared: Tensor) -> Tensor:
        """The output of the graph, on the CPU."""
        return run_graph(self.graph.session(self.file), self.shape, prepared.detach().float().cpu())

    def look(self, images: Tensor) -> Tensor:
        """Its features repeated for every token, as the output of a graph has no positions."""
        return self.summary(images)[:, None].expand(-1, self.tokens, -1)


class Graph:
    """A lazily created session, shared by all copies of an encoder."""

    def __init__(self) -> None:
        self._session: Any = None

    def session(self, file: Tensor) -> Any:
        if self._session is None:
            self._session = session_of(file.cpu().numpy().tobytes())
        return self._session

    def __deepcopy__(self, memo: dict[int, Any]) -> "Graph":
        return self


def run_graph(session: Any, shape: GraphShape, images: Tensor) -> Tensor:
    """Its output for prepared images, one at a time, as the graph may have room for one only."""
    found = []
    for image in images:
        [output] = session.run([shape.output], {shape.input: image[None].numpy()})
        found.append(torch.from_numpy(output).float())
    return torch.cat(found)


def flattened(output: Tensor) -> Tensor:
    """One vector an image: a feature map averaged over places, of tokens the first beside the mean of the others."""
    if output.ndim == 4:
        return output.mean(dim=(2, 3))
    if output.ndim == 3 and output.shape[1] > 1:
        return torch.cat([output[:, 0], output[:, 1:].mean(dim=1)], dim=1)
    return output.flatten(1)


def session_of(content: bytes) -> Any:
    """A session that computes on the CPU."""
    import onnxruntime  # type: ignore[import-untyped]

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4  # problems are raised; they need not be printed as well
    options.intra_op_num_threads = torch.get_num_threads()
    return onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])


def read_onnx(file: Path, origin: str) -> PretrainedWeights:
    """The encoder in an ONNX file, cut off behind the features, tried out on a blank image."""
    require_packages()
    sidecar = file.with_name(f"{file.name}.json")
    told = read_json(sidecar) if sidecar.is_file() else {}
    model = load(file)
    image_input = the_input(model, file)
    output = str(told.get("output") or model.graph.output[0].name)
    content = cut(model, image_input.name, output, file)
    default = usual_preprocessing(image_input)
    found = find_preprocessing(
        (sidecar, file.with_name("preprocessor_config.json"), file.parent.parent / "preprocessor_config.json"), default
    )
    side = image_input.type.tensor_type.shape.dim[2].dim_value
    if side not in (0, found.crop):
        raise GcabError(
            f"{file} takes images of {side} pixels, and would be given {found.crop} ({found.words}): set "
            f'"crop_size" to {side} and "do_center_crop" to true in {sidecar.name} beside it.'
        )
    shape = GraphShape(len(content), image_input.name, output, 1)
    try:
        blank = torch.zeros(1, 3, found.crop, found.crop)
        features = flattened(run_graph(session_of(content), shape, blank)).shape[1]
    except Exception as problem:  # onnxruntime has many kinds
        reason = str(problem).strip().partition("\n")[0]
        raise GcabError(f"{file} does not run on an image of {found.crop} pixels ({reason}).") from None
    if features < FEWEST:
        raise GcabError(
            f"{file} ends in {features} numbers an image, which are an answer and no features: name a tensor inside it "
            f'as "output" in {sidecar.name} beside it.'
        )
    licence = str(told.get("licence") or told.get("license") or licence_in(file.parent))
    properties = {entry.key: entry.value for entry in model.metadata_props}
    description = Description(
        kind=ONNX,
        origin=str(told.get("origin") or origin),
        licence=properties.get("license", licence) if licence == UNKNOWN else licence,
        digest=hashlib.sha256(content).hexdigest(),
        resize=found.resize,
        crop=found.crop,
        preprocessing=found.words,
        shape=asdict(GraphShape(len(content), image_input.name, output, features)),
    )
    tensors = {"file": torch.frombuffer(bytearray(content), dtype=torch.uint8)}
    return PretrainedWeights(description, found.mean, found.std, tensors)


def require_packages() -> None:
    for name in ("onnx", "onnxruntime"):
        if importlib.util.find_spec(name) is None:
            raise GcabError(f"an ONNX encoder needs {name}, which is not installed: pip install 'gcab[pretrained]'.")


def load(file: Path) -> "ModelProto":
    import onnx

    try:
        return onnx.load(file)  # with tensors that lie in files beside it
    except OSError as problem:
        raise GcabError(
            f"{file} cannot be read ({problem.strerror or problem}): check it and what is beside it."
        ) from None
    except Exception:  # protobuf's errors have several kinds
        raise GcabError(f"{file} is damaged or no ONNX file: fetch it again.") from None


def the_input(model: "ModelProto", file: Path) -> Any:
    """The only input that is not a weight, if it can be an image (B, 3, H, W) in single precision."""
    from onnx import TensorProto

    weights = {tensor.name for tensor in model.graph.initializer}
    inputs = [given for given in model.graph.input if given.name not in weights]
    if len(inputs) != 1:
        names = ", ".join(given.name for given in inputs) or "none"
        raise GcabError(f"{file} has {len(inputs)} inputs ({names}): an encoder has one, the image.")
    kind = inputs[0].type.tensor_type
    sides = [dimension.dim_value for dimension in kind.shape.dim]
    if kind.elem_type != TensorProto.FLOAT or len(sides) != 4 or sides[1] not in (0, 3) or sides[2] != sides[3]:
        raise GcabError(
            f"the input of {file} is no square image of single precision, (n, 3, side, side): export it so."
        )
    return inputs[0]


def usual_preprocessing(image_input: Any) -> Preprocessing:
    """The default preprocessing, at the input's size where the graph fixes it."""
    side = image_input.type.tensor_type.shape.dim[2].dim_value or USUAL_SIDE
    resize = side * USUAL_RESIZE // USUAL_SIDE
    return Preprocessing(resize, side, *IMAGENET, "as usual for ImageNet (no file beside it says otherwise)")


def cut(model: "ModelProto", first: str, last: str, file: Path) -> bytes:
    """The graph from its input to a tensor, as a file; nothing behind it is kept."""
    if model.ByteSize() > MOST_BYTES:
        raise GcabError(f"{file} has more than the 2 GB that one ONNX file holds: take a smaller encoder.")
    if [output.name for output in model.graph.output] == [last]:
        return model.SerializeToString()
    made = {name for node in model.graph.node for name in node.output}
    if last not in made:
        raise GcabError(f"{file} has no tensor '{last}', which is to be its output: look at its graph.")
    nodes = needed(model.graph.node, last)
    used = {name for node in nodes for name in node.input}
    weights = [tensor for tensor in model.graph.initializer if tensor.name in used]
    from onnx import helper

    ending = helper.make_empty_tensor_value_info(last)
    own = [given for given in model.graph.input if given.name == first]
    graph = helper.make_graph(nodes, model.graph.name or "encoder", own, [ending], weights)
    smaller = helper.make_model(graph, opset_imports=model.opset_import, functions=model.functions)
    smaller.ir_version = model.ir_version
    return smaller.SerializeToString()


def needed(nodes: Sequence[Any], last: str) -> list[Any]:
    """The operations that a tensor depends on, in their order."""
    wanted, kept = {last}, []
    for node in reversed(nodes):
        if wanted & set(node.output):
            kept.append(node)
            inner = (name for part in node.attribute for step in part.g.node for name in step.input)
            wanted |= {*node.input, *inner}
    return kept[::-1]
