"""The paper's equations once more, as float64 Python loops that share no code with the package.

Matrices are lists of rows; every product is an explicit sum over units, every head and token has its own turn.
"""

import math

from torch import Tensor, nn

from gcab.model.class_attention import ClassAttention
from gcab.model.encoder import Encoder, GatedPositionalSelfAttention, SelfAttention
from gcab.model.projectors import ResidualProjector

Vector = list[float]
Matrix = list[list[float]]


def numbers(tensor: Tensor) -> Vector:
    values: Vector = tensor.detach().double().flatten().tolist()
    return values


def table(tensor: Tensor) -> Matrix:
    rows: Matrix = tensor.detach().double().tolist()
    return rows


def sigmoid(x: float) -> float:
    return 1 / (1 + math.exp(-x)) if x > -700 else 0.0


def sigmoid_slope(x: float) -> float:
    return 1 / (2 + 2 * math.cosh(x))


def gelu(x: float) -> float:
    return 0.5 * x * (1 + math.erf(x / math.sqrt(2)))


def softmax(logits: Vector) -> Vector:
    largest = max(logits)
    powers = [math.exp(logit - largest) for logit in logits]
    return [power / sum(powers) for power in powers]


def gate(embedding: Tensor, sharpness: float) -> Vector:
    """Eq. mask: m = σ(s e)."""
    return [sigmoid(sharpness * e) for e in numbers(embedding)]


def add(a: Matrix, b: Matrix) -> Matrix:
    return [[x + y for x, y in zip(row, other, strict=True)] for row, other in zip(a, b, strict=True)]


def masked(x: Matrix, mask: Vector) -> Matrix:
    return [[value * m for value, m in zip(row, mask, strict=True)] for row in x]


def linear(x: Matrix, layer: nn.Module) -> Matrix:
    assert isinstance(layer, nn.Linear)
    weight = table(layer.weight)
    bias = numbers(layer.bias) if layer.bias is not None else [0.0] * len(weight)
    result = []
    for row in x:
        outputs = []
        for unit in range(len(weight)):
            total = bias[unit]
            for k in range(len(row)):
                total += weight[unit][k] * row[k]
            outputs.append(total)
        result.append(outputs)
    return result


def layer_norm(row: Vector, layer: nn.Module) -> Vector:
    assert isinstance(layer, nn.LayerNorm)
    mean = sum(row) / len(row)
    variance = sum((value - mean) ** 2 for value in row) / len(row)
    scale, shift = numbers(layer.weight), numbers(layer.bias)
    return [(value - mean) / math.sqrt(variance + layer.eps) * scale[i] + shift[i] for i, value in enumerate(row)]


def layer_norms(x: Matrix, layer: nn.Module) -> Matrix:
    return [layer_norm(row, layer) for row in x]


def attend(queries: Matrix, keys: Matrix, values: Matrix, heads: int) -> Matrix:
    """Head after head: softmax(q k^T / sqrt(d/h)) v, results side by side."""
    share = len(queries[0]) // heads
    result = []
    for query in queries:
        outputs: Vector = []
        for head in range(heads):
            units = range(head * share, (head + 1) * share)
            logits = [sum(query[u] * key[u] for u in units) / math.sqrt(share) for key in keys]
            weights = softmax(logits)
            for u in units:
                outputs.append(sum(weights[n] * values[n][u] for n in range(len(values))))
        result.append(outputs)
    return result


def decode_as_in_text(
    block: ClassAttention, token: Vector, features: Matrix, m_i: Vector, m_2: Vector, activation: bool
) -> Vector:
    """The text's Q, K, V, A, O and MLP, with m_QK = m_V = m_1 = m_i: no norm, f = v + O."""
    m_qk = m_v = m_1 = m_i
    p = [token, *features]
    q = linear(masked([token], m_i), block.query)
    k = linear(masked(p, m_i), block.key)
    v = linear(masked(p, m_i), block.value)
    mixed = attend(masked(q, m_qk), masked(k, m_qk), masked(v, m_v), block.heads)
    attention_output = linear(mixed, block.output)  # O
    b_prime = add(attention_output, [token])
    u = linear(masked(b_prime, m_1), block.expand)
    if activation:
        u = [[gelu(value) for value in row] for row in u]
    contracted = linear(masked(u, m_2), block.contract)  # v
    return add(contracted, attention_output)[0]


def decode_as_published(block: ClassAttention, token: Vector, features: Matrix, m_i: Vector, m_2: Vector) -> Vector:
    """The authors' block: norms first, m_i also on O and on the MLP's output, f = v + (O + θ)."""
    p = masked(layer_norms([token, *features], block.norm_attention), m_i)
    q = masked(linear(p[:1], block.query), m_i)
    k = masked(linear(p, block.key), m_i)
    v = masked(linear(p, block.value), m_i)
    attention_output = masked(linear(attend(q, k, v, block.heads), block.output), m_i)
    b_prime = add(attention_output, [token])
    u = linear(masked(layer_norms(b_prime, block.norm_mlp), m_i), block.expand)
    activated = [[gelu(value) for value in row] for row in u]
    contracted = masked(linear(masked(activated, m_2), block.contract), m_i)
    return add(contracted, b_prime)[0]


def positional_attention(attention: GatedPositionalSelfAttention, side: int, head: int) -> Matrix:
    """Row n: how much token n looks at every other one, from (dx, dy, dx² + dy²) alone."""
    weight, bias = table(attention.position.weight)[head], numbers(attention.position.bias)[head]
    result = []
    for token in range(side * side):
        logits = []
        for other in range(side * side):
            dx, dy = other % side - token % side, other // side - token // side
            logits.append(weight[0] * dx + weight[1] * dy + weight[2] * (dx * dx + dy * dy) + bias)
        result.append(softmax(logits))
    return result


def self_attention(attention: SelfAttention, x: Matrix) -> Matrix:
    width = len(x[0])
    both = linear(x, attention.query_key)
    q, k = [row[:width] for row in both], [row[width:] for row in both]
    v = linear(x, attention.value)
    mixed = attend(q, k, v, attention.heads)
    if isinstance(attention, GatedPositionalSelfAttention):
        side, share = math.isqrt(len(x)), width // attention.heads
        for head in range(attention.heads):
            g = sigmoid(numbers(attention.gate)[head])
            positional = positional_attention(attention, side, head)
            for n in range(len(x)):
                for u in range(head * share, (head + 1) * share):
                    looked_at = sum(positional[n][other] * v[other][u] for other in range(len(x)))
                    mixed[n][u] = (1 - g) * mixed[n][u] + g * looked_at
    return linear(mixed, attention.output)


def encode(encoder: Encoder, image: Tensor) -> Matrix:
    """Patches row by row through the convolution, position added, then Eq. ViTblock with norms in front."""
    patch = encoder.config.patch
    pixels = image.detach().double().tolist()  # [channel][y][x]
    kernels = encoder.patches.weight.detach().double().tolist()  # [unit][channel][y][x]
    assert encoder.patches.bias is not None
    bias, position = numbers(encoder.patches.bias), table(encoder.position[0])
    side = len(pixels[0]) // patch
    x: Matrix = []
    for token in range(side * side):
        top, left = token // side * patch, token % side * patch
        row = []
        for unit, kernel in enumerate(kernels):
            total = bias[unit] + position[token][unit]
            for channel in range(3):
                for dy in range(patch):
                    for dx in range(patch):
                        total += kernel[channel][dy][dx] * pixels[channel][top + dy][left + dx]
            row.append(total)
        x.append(row)
    for block in encoder.blocks:
        attention, mlp = block.attention, block.mlp
        assert isinstance(attention, SelfAttention)
        assert isinstance(mlp, nn.Sequential)
        x = add(x, self_attention(attention, layer_norms(x, block.get_submodule("norm_attention"))))
        hidden = linear(layer_norms(x, block.get_submodule("norm_mlp")), mlp[0])
        x = add(x, linear([[gelu(value) for value in row] for row in hidden], mlp[2]))
    return x


def project(projector: nn.Module, features: Matrix) -> Matrix:
    """p^t: linear, (a norm over all tokens and channels together), ReLU, linear; or x + that of each token's norm."""
    if isinstance(projector, ResidualProjector):
        norm, first, _, last = projector.change
        hidden = linear(layer_norms(features, norm), first)
        return add(features, linear([[max(0.0, value) for value in row] for row in hidden], last))
    assert isinstance(projector, nn.Sequential)
    x = linear(features, projector[0])
    if len(projector) == 4:
        flat = layer_norm([value for row in x for value in row], projector[1])
        x = [flat[n * len(x[0]) : (n + 1) * len(x[0])] for n in range(len(x))]
    return linear([[max(0.0, value) for value in row] for row in x], projector[len(projector) - 1])


def binary_cross_entropy(logits: Matrix, labels: list[int]) -> float:
    """The mean over images and classes of -log of the probability given to the right answer, yes or no."""
    total = 0.0
    for row, label in zip(logits, labels, strict=True):
        for unit, logit in enumerate(row):
            total -= math.log(sigmoid(logit) if unit == label else sigmoid(-logit))
    return total / (len(logits) * len(logits[0]))


def cosine_distance(a: Vector, b: Vector) -> float:
    product = sum(x * y for x, y in zip(a, b, strict=True))
    return 1 - product / math.sqrt(sum(x * x for x in a) * sum(y * y for y in b))


def sparsity(masks: Vector, used: Vector) -> float:
    """L_GCAB without its weight."""
    cost = sum(m * (1 - u) for m, u in zip(masks, used, strict=True))
    return cost / sum(1 - u for u in used)


def class_means(features: Matrix, labels: list[int], classes: int) -> Matrix:
    means = []
    for label in range(classes):
        rows = [row for row, l in zip(features, labels, strict=True) if l == label]  # noqa: E741
        means.append([sum(row[u] for row in rows) / len(rows) for u in range(len(features[0]))])
    return means


def shared_variance(features: Matrix, labels: list[int], means: Matrix) -> Vector:
    """Around each image's own class mean, one per feature, plus a thousandth of their mean against zeros."""
    variances = []
    for u in range(len(features[0])):
        squares = [(row[u] - means[label][u]) ** 2 for row, label in zip(features, labels, strict=True)]
        variances.append(sum(squares) / len(squares))
    floor = 1e-3 * sum(variances) / len(variances)
    return [variance + floor + 1e-12 for variance in variances]


def distance_to_nearest(row: Vector, means: Matrix, variance: Vector) -> float:
    """min over classes of the mean over features of (x - mean)² / variance."""
    return min(sum((x - m) ** 2 / v for x, m, v in zip(row, mean, variance, strict=True)) / len(row) for mean in means)


def log_softmax(logits: Vector) -> Vector:
    largest = max(logits)
    total = sum(math.exp(logit - largest) for logit in logits)
    return [logit - largest - math.log(total) for logit in logits]
