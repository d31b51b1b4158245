"""An ONNX encoder and what was learned behind it as one ONNX graph: what comes before, the encoder, what follows."""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn
from torch.export import ExportedProgram

from gcab.errors import GcabError
from gcab.export.exported import Exported, traced
from gcab.methods.frozen import Frozen
from gcab.pretrained.onnx_file import OnnxEncoder, flattened

if TYPE_CHECKING:
    from onnx import ModelProto

IMAGES = 3  # to trace with

Translate = Callable[[ExportedProgram, str, tuple[str, ...]], "ModelProto"]  # with the names of its input and outputs


def onnx_encoder(method: nn.Module) -> OnnxEncoder | None:
    """The encoder that is a graph itself, if the method has one; it cannot be traced."""
    return next((part for part in method.modules() if isinstance(part, OnnxEncoder)), None)


class Before(nn.Module):
    """From an exported model's input to that of the encoder."""

    def __init__(self, exported: Exported, encoder: OnnxEncoder) -> None:
        super().__init__()
        self.preprocessing, self.encoder = exported.preprocessing, encoder

    def forward(self, images: Tensor) -> Tensor:
        return self.encoder.prepared(images if self.preprocessing is None else self.preprocessing(images))


class After(nn.Module):
    """From the encoder's output to the answers."""

    def __init__(self, exported: Exported, method: Frozen) -> None:
        super().__init__()
        self.sight, self.ridge, self.calibrated = method.extractor, method.eye.ridge, exported.calibrated

    def forward(self, output: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        logits = self.ridge(self.sight.scaled(flattened(output.float())))
        return logits, *self.calibrated(logits)


def composed(
    module: Exported, encoder: OnnxEncoder, names: tuple[str, tuple[str, ...]], translate: Translate
) -> "ModelProto":
    """The three as one graph, of the operators that the exporter writes."""
    import onnx
    from onnx import compose, version_converter

    method = getattr(module.predictor, "method", None)
    if not isinstance(method, Frozen):
        raise GcabError("only the method frozen can be exported with an encoder that is an ONNX file.")
    taken, answers = names
    before, after = Before(module, encoder).eval(), After(module, method).eval()
    sample = module.samples()[-1]
    with torch.no_grad():
        raw = encoder.raw(before(sample.expand(IMAGES, *sample.shape[1:]) if len(sample) == 1 else sample))
    first = translate(traced(before, sample, module.dimensions, strict=False), taken, (encoder.shape.input,))
    last = translate(traced(after, raw, {0: "n"}, strict=False), encoder.shape.output, answers)
    own = onnx.load_from_string(encoder.file.cpu().numpy().tobytes())
    [opset] = [entry.version for entry in first.opset_import if entry.domain in ("", "ai.onnx")]
    middle = version_converter.convert_version(own, opset)
    for graph in (first, middle, last):
        graph.ir_version = first.ir_version
    prefixed = [compose.add_prefix(graph, f"{name}/") for name, graph in (("a", first), ("b", middle), ("c", last))]
    joined = prefixed[0]
    for graph in prefixed[1:]:
        joined = compose.merge_models(joined, graph, [(joined.graph.output[0].name, graph.graph.input[0].name)])
    renamed(joined, {f"a/{taken}": taken, **{f"c/{name}": name for name in answers}})
    return joined


def renamed(model: "ModelProto", names: Mapping[str, str]) -> None:
    """Rename inputs and outputs of a graph."""
    for node in model.graph.node:
        for places in (node.input, node.output):
            for index, name in enumerate(places):
                places[index] = names.get(name, name)
    for end in (*model.graph.input, *model.graph.output):
        end.name = names.get(end.name, end.name)
