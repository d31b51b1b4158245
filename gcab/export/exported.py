"""The computation of an exported file, from images to outputs, as one module that can be traced."""

import copy
from collections.abc import Mapping

import torch
from torch import Tensor, nn
from torch.export import Dim, ExportedProgram

from gcab.classifier.calibration import FARTHEST, Calibration, certainty, familiarity
from gcab.classifier.model import Classifier
from gcab.export.preprocessing import Preprocessing
from gcab.methods.method import Method
from gcab.sizes import sides


def traced(module: nn.Module, sample: Tensor, free: Mapping[int, str], strict: bool) -> ExportedProgram:
    """A module's graph of tensor operations.

    `strict` reads the code, which takes twice as long, and leaves out tensors that only learning needs, such as stored
    images; without it they have to be left out later.
    """
    shapes = ({index: Dim(name) for index, name in free.items()},)
    with torch.no_grad():
        try:
            program = torch.export.export(module, (sample,), dynamic_shapes=shapes, strict=strict)
        except Exception:
            if strict:
                raise
            return traced(module, sample, free, strict=True)  # which follows more: len() of a batch, for example
    signature = program.graph_signature
    used = {*signature.inputs_to_parameters.values(), *signature.inputs_to_buffers.values()}
    for name in program.state_dict.keys() - used:
        del program.state_dict[name]
    return program


class Exported(nn.Module):
    """The model from its input to its answers, on the CPU; it shares no tensor with the one it was made of."""

    def __init__(self, model: Classifier, with_preprocessing: bool) -> None:
        super().__init__()
        predictor = model.method.predictor()
        self.predictor = copy.deepcopy(predictor if isinstance(predictor, nn.Module) else Predict(model.method))
        self.preprocessing = Preprocessing(model.method.setting) if with_preprocessing else None
        self.calibrated = Calibrated(model.calibration)
        self.setting, self.calibration = model.method.setting, model.calibration
        self.cpu().eval().requires_grad_(False)

    @property
    def dimensions(self) -> dict[int, str]:
        """The input's free dimensions."""
        return {0: "n"} if self.preprocessing is None else {0: "n", 1: "height", 2: "width"}

    def forward(self, images: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        logits = self.logits(images)
        return logits, *self.calibrated(logits)

    @torch.no_grad()
    def expected(self, images: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """The outputs of gcab itself, to compare with."""
        logits = self.logits(images)
        return logits, self.calibration.probabilities(logits), self.calibration.unknown(logits)

    def logits(self, images: Tensor) -> Tensor:
        return self.predictor(images if self.preprocessing is None else self.preprocessing(images)).float()

    def samples(self) -> list[Tensor]:
        """Random inputs: one image, three, and with preprocessing two larger photos of another shape."""
        (height, width), generator = sides(self.setting.image_size), torch.Generator().manual_seed(1)
        shapes = [(1, height, width, 3), (3, height, width, 3)]
        if self.preprocessing is not None:
            shapes.append((2, 3 * height + 1, 5 * width, 3))
        photos = [torch.randint(0, 256, shape, dtype=torch.uint8, generator=generator) for shape in shapes]
        if self.preprocessing is not None:
            return photos
        return [self.setting.normalise(photo.permute(0, 3, 1, 2)) for photo in photos]

    def program(self, strict: bool) -> ExportedProgram:
        return traced(self, self.samples()[-1], self.dimensions, strict)


class Calibrated(nn.Module):
    """`Calibration` without its checks of the values, which a graph cannot make."""

    knots: Tensor

    def __init__(self, calibration: Calibration) -> None:
        super().__init__()
        self.calibration = calibration
        knots = calibration.familiarity if calibration.tells_unknown else ()
        self.register_buffer("knots", torch.tensor(knots, dtype=torch.float64))

    def forward(self, logits: Tensor) -> tuple[Tensor, Tensor]:
        """Probabilities (n, classes) and how unknown each image looks (n,)."""
        temperature, strongest = self.calibration.temperature, logits.double().amax(dim=1, keepdim=True)
        z = (logits - strongest).clamp_min(-FARTHEST)
        (middle, spread), (usual, width) = self.calibration.certainty, self.calibration.strength
        certain, strong = (certainty(z, temperature)[:, None] - middle) / spread, (strongest - usual) / width  # (n, 1)
        of_newest = logits.argmax(dim=1, keepdim=True) >= self.calibration.newest
        familiar = familiarity(certain, strong, of_newest, self.calibration.alike)
        unknown = (familiar < self.knots).sum(dim=1) / max(1, len(self.knots))
        return (z / temperature).softmax(dim=1).float(), unknown.float()


class Predict(nn.Module):
    """A method's `predict` as a module."""

    def __init__(self, method: Method) -> None:
        super().__init__()
        self.method = method

    def forward(self, images: Tensor) -> Tensor:
        return self.method.predict(images)
