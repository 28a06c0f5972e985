# SPDX-License-Identifier: Apache-2.0
"""The tasks: one table of layers each, from which every framework's network is made, ours included.

Parameters travel between frameworks as one flat float32 vector in PyTorch's order, frozen ones last, images as [records, channels,
height, width], sequences as [records, positions] of ids or [records, positions, features]. JAX computes channels-last,
as its users do: its images and weights are rearranged on their way in and out, outside what is timed.
"""

import dataclasses
import math

from language import (ClassToken, EncoderBlock, Gpt2Block, LayerNorm, LearnedPositions, OnePosition, Patches,
                      TiedUnembedding, TokenEmbedding)
from layers import Activation, AdaptiveAvgPool, Conv, Flatten, Linear, Norm, Pool
from sequences import (CrossAttention, Embedding, MeanOverPositions, Recurrent, SinusoidalPositions,
                       TransformerEncoderLayer)

CLASSES_SEED = 20240229
LEAST_DATA_BYTES = 64 << 20  # more than caches hold, so that a step reads its batch from memory as it would in training

conv, linear, adaptive_avg_pool = Conv, Linear, AdaptiveAvgPool
relu, sigmoid, tanh, flatten = Activation("relu"), Activation("sigmoid"), Activation("tanh"), Flatten()


def max_pool(kernel, stride=None):
    return Pool("max", kernel, stride or kernel)


def avg_pool(kernel):
    return Pool("avg", kernel, kernel)


@dataclasses.dataclass(frozen=True)
class Task:
    source: str
    input: tuple
    layers: tuple
    batches: tuple = (16, 256, 2048)
    default: bool = False
    # between two frameworks' sums of a batch's gradients, relative, in L2; where it is more, README.md says why
    largest_difference: float = 1e-4
    vocabulary: int = 0  # not 0: inputs are ids below it, int32
    # or "mean_squared_error" with targets shaped like the output, or "token_cross_entropy" of a class a position
    loss: str = "cross_entropy"
    # a training step; otherwise only forward and backward, with the samples' norms in the DP frameworks
    update: bool = True


def layer_task(source, input, layer, **more):
    """One of Opacus' layers alone."""
    return Task(f"Yousefpour et al. 2021: {source}, forward and backward with the samples' norms", input, (layer,),
                batches=(16, 64, 256, 512), loss="mean_squared_error", update=False, **more)


def vgg(widths):
    layers = []
    for width in widths:
        layers += [max_pool(2)] if width == "pool" else [conv(width, 3, padding=1), relu]
    return layers


def rochette_toy(depth, width, rate, kernel):
    """Rochette et al.'s toy networks: convolutions with padding 2, ReLU, a pool after every second one, one linear."""
    layers = []
    for i in range(depth):
        layers += [conv(int(width * rate**i), kernel, padding=2), relu]
        layers += [max_pool(2)] if i % 2 == 1 else []
    return (*layers, flatten, linear(10))


def gpt2(source, positions=128, blocks=12, features=768, heads=12, vocabulary=50_257, rank=0):
    """`rank`: of the adapters of queries, keys and values, which alone are trained then."""
    frozen = rank > 0
    return Task(source, (positions,), (
        TokenEmbedding(vocabulary, features, tied=True, frozen=frozen), LearnedPositions(frozen),
        *[Gpt2Block(heads, rank)] * blocks, LayerNorm(frozen=frozen), TiedUnembedding(vocabulary, frozen)),
        batches=(8,), vocabulary=vocabulary, loss="token_cross_entropy")


def roberta(source, positions=128, blocks=12, features=768, heads=12, inner=3072, vocabulary=50_265):
    return Task(source, (positions,), (
        TokenEmbedding(vocabulary, features), LearnedPositions(), LayerNorm(),
        *[EncoderBlock(heads, inner, False, 1e-5)] * blocks, OnePosition(last=False), linear(features), tanh, linear(2)),
        batches=(8,), vocabulary=vocabulary)


def vit(source, side=224, patch=16, blocks=12, features=192, heads=3, inner=768, classes=1000):
    return Task(source, (3, side, side), (
        conv(features, patch, patch), Patches(), ClassToken(), LearnedPositions(),
        *[EncoderBlock(heads, inner, True, 1e-12)] * blocks, LayerNorm(1e-12), OnePosition(last=True), linear(classes)),
        batches=(8,))


TASKS = {
    "mnist_cnn": Task("Subramani et al. 2021 and Yousefpour et al. 2021: MNIST CNN, 26,010 parameters", (1, 28, 28), (
        conv(16, 8, 2, 3), relu, max_pool(2, 1), conv(32, 4, 2), relu, max_pool(2, 1),
        flatten, linear(32), relu, linear(10)), default=True),
    "cifar_cnn": Task("Subramani et al. 2021 and Yousefpour et al. 2021: CIFAR-10 CNN, 605,226 parameters", (
        3, 32, 32), (
        conv(32, 3, padding=1), relu, conv(32, 3, padding=1), relu, avg_pool(2),
        conv(64, 3, padding=1), relu, conv(64, 3, padding=1), relu, avg_pool(2),
        conv(128, 3, padding=1), relu, conv(128, 3, padding=1), relu, avg_pool(2),
        conv(256, 3, padding=1), relu, conv(10, 3, padding=1), adaptive_avg_pool(1), flatten), default=True),
    "mlp": Task("Lee and Kifer 2021: MLP 784-128-256-10, sigmoid", (784,), (
        linear(128), sigmoid, linear(256), sigmoid, linear(10)), default=True),
    "lk_cnn": Task("Lee and Kifer 2021: MNIST CNN, 129,388 parameters", (1, 28, 28), (
        conv(20, 5), relu, max_pool(2), conv(50, 5), relu, max_pool(2), flatten, linear(128), relu, linear(10)),
        batches=(16, 32, 256, 2048)),
    "alexnet": Task("Rochette et al. 2019, Table 1: AlexNet without dropout at 256 x 256", (3, 256, 256), (
        conv(64, 11, 4, 2), relu, max_pool(3, 2), conv(192, 5, padding=2), relu, max_pool(3, 2),
        conv(384, 3, padding=1), relu, conv(256, 3, padding=1), relu, conv(256, 3, padding=1), relu, max_pool(3, 2),
        adaptive_avg_pool(6), flatten, linear(4096), relu, linear(4096), relu, linear(1000)), batches=(16,),
        largest_difference=5e-4),
    "vgg16": Task("Rochette et al. 2019, Table 1: VGG16 without dropout at 256 x 256", (3, 256, 256), (
        *vgg([64, 64, "pool", 128, 128, "pool", 256, 256, 256, "pool", 512, 512, 512, "pool", 512, 512, 512, "pool"]),
        adaptive_avg_pool(7), flatten, linear(4096), relu, linear(4096), relu, linear(1000)), batches=(8,)),
    "rochette_1": Task("Rochette et al. 2019, Figure 1: 3 layers, 25 channels, rate 2, kernel 3", (3, 256, 256),
                       rochette_toy(3, 25, 2, 3), batches=(8,), largest_difference=2e-3),
    "rochette_2": Task("Rochette et al. 2019, Figure 2, but at 64 x 64: 3 layers, 256 channels, kernel 5",
                       (3, 64, 64), rochette_toy(3, 256, 1, 5), batches=(8,), largest_difference=1e-3),
    "rochette_3": Task("Rochette et al. 2019, Figure 3: 3 layers, 25 channels, rate 2, kernel 5", (3, 256, 256),
                       rochette_toy(3, 25, 2, 5), batches=(8,), largest_difference=2e-3),
    "opacus_linear": Task("Yousefpour et al. 2021: linear 512 x 512, here as a classifier's training step", (512,), (
        linear(512),), batches=(16, 512)),
    "opacus_conv": Task("Yousefpour et al. 2021: convolution 64 -> 64, 8 x 8, here with a mean over positions and a "
                        "classifier's training step", (64, 50, 100), (
        conv(64, 8), adaptive_avg_pool(1), flatten), batches=(16,)),
    "embed": Task("Subramani et al. 2021, Yousefpour et al. 2021: IMDb embedding net, 160,098 parameters", (256,), (
        Embedding(10_004, 16), MeanOverPositions(), linear(2)), vocabulary=10_004),
    "lstm": Task("Subramani et al. 2021, Yousefpour et al. 2021: IMDb LSTM, one bias, 1,081,002 parameters", (256,), (
        Embedding(10_004, 100), Recurrent("lstm", 100, biases=1), MeanOverPositions(), linear(2)), batches=(16, 256),
        vocabulary=10_004),
    "lk_rnn": Task("Lee and Kifer 2021: RNN over the rows of an MNIST image, 21,514 parameters", (28, 28), (
        Recurrent("rnn", 128, last=True), linear(10)), batches=(32,)),
    "lk_lstm": Task("Lee and Kifer 2021: LSTM over the rows of an MNIST image, 82,186 parameters", (28, 28), (
        Recurrent("lstm", 128, last=True), linear(10)), batches=(32,)),
    "lk_transformer": Task("Lee and Kifer 2021: transformer, 512 embedded words, 483,002 parameters", (512, 200), (
        SinusoidalPositions(), TransformerEncoderLayer(8, 800), MeanOverPositions(), linear(2)), batches=(32,),
        largest_difference=5e-4),
    "gpt2_small_full": gpt2("Radford et al. 2019: GPT-2 small on 128 ids, 123,751,680 parameters, its table used twice"),
    "gpt2_small_lora": gpt2("Hu et al. 2021: GPT-2 small on 128 ids, adapters of rank 8 on queries, keys and values",
                            rank=8),
    "gpt2_small_full_512": gpt2("GPT-2 small on 512 ids", positions=512),
    "gpt2_small_lora_512": gpt2("GPT-2 small with adapters on 512 ids", positions=512, rank=8),
    "roberta_cls": roberta("Liu et al. 2019: RoBERTa's base model on 128 ids, without token types, as a classifier"),
    "vit_tiny": vit("Touvron et al. 2021: ViT's tiny model on images of 224 x 224, 5,717,416 parameters"),
    # Do they run, and are their sums right? What they take says nothing.
    "gpt2_smoke": gpt2("a tiny GPT-2", 16, 2, 24, 3, 70),
    "gpt2_lora_smoke": gpt2("a tiny GPT-2 with adapters", 16, 2, 24, 3, 70, rank=2),
    "roberta_smoke": roberta("a tiny RoBERTa", 16, 2, 24, 3, 40, 70),
    "vit_smoke": vit("a tiny ViT", 16, 4, 2, 24, 3, 40, 5),
    "layer_linear": layer_task("linear 512 -> 512", (512,), linear(512)),
    "layer_conv": layer_task("convolution 64 -> 64, 8 x 8, of 50 x 100", (64, 50, 100), conv(64, 8)),
    "layer_layernorm": layer_task("layer norm of 64", (64,), Norm("layer")),
    "layer_instancenorm": layer_task("instance norm of 256 x 64", (256, 64), Norm("instance")),
    "layer_groupnorm": layer_task("group norm of 256 in 16 groups", (256,), Norm("group", 16)),
    "layer_embedding": layer_task("embedding 20,000 x 100 of one id", (1,), Embedding(20_000, 100),
                                  vocabulary=20_000),
    "layer_mha": layer_task("attention of 64 positions to 128 others, 100 features, 4 heads", (192, 100),
                            CrossAttention(4, 64)),
    "layer_rnn": layer_task("RNN 100 -> 100, 128 steps, no bias", (128, 100), Recurrent("rnn", 100, biases=0)),
    "layer_gru": layer_task("GRU 100 -> 100, 128 steps, no bias", (128, 100), Recurrent("gru", 100, biases=0)),
    "layer_lstm": layer_task("LSTM 100 -> 100, 128 steps, no bias", (128, 100), Recurrent("lstm", 100, biases=0)),
}


def shapes(task):
    """The shape before each layer, and the last output's."""
    result = [tuple(task.input)]
    for layer in task.layers:
        result.append(layer.output(result[-1]))
    return result


def weights(task):
    """For every layer the list of its tensors of parameters, in PyTorch's order."""
    return [layer.weights(shape) for layer, shape in zip(task.layers, shapes(task))]


def parameter_count(task):
    """Of those that are trained."""
    return sum(weight.count for group in weights(task) for weight in group if not weight.frozen)


def flat_order(task):
    """All weights as the flat vector has them: those that are trained, then the frozen ones."""
    return sorted((weight for group in weights(task) for weight in group), key=lambda weight: weight.frozen)


def initial_parameters(task):
    """Linear maps as nn.Linear, nn.Conv2d and nn.LSTM start; tables and norms uniform too."""
    import numpy

    generator = numpy.random.Generator(numpy.random.PCG64(1))
    parts = []
    for weight in flat_order(task):
        uniform = 2 * generator.random(weight.count, dtype=numpy.float32) - 1
        parts.append(uniform * numpy.float32(weight.bound) + numpy.float32(weight.centre))
    return numpy.concatenate(parts)


def data_files(task):
    """(name, type, shape of a record) of the inputs' file and of the targets'."""
    inputs = ("inputs.i32", "int32") if task.vocabulary else ("inputs.f32", "float32")
    if task.loss == "cross_entropy":
        return (*inputs, tuple(task.input)), ("labels.i32", "int32", ())
    if task.loss == "token_cross_entropy":
        return (*inputs, tuple(task.input)), ("labels.i32", "int32", shapes(task)[-1][:1])
    return (*inputs, tuple(task.input)), ("targets.f32", "float32", shapes(task)[-1])


def record_count(task, batches):
    """At least two of the largest batch, or one that is larger than caches are."""
    size = sum(4 * math.prod(shape) for _, kind, shape in data_files(task) if shape)
    most = max(batches)
    return max(most if most * size > LEAST_DATA_BYTES else 2 * most, LEAST_DATA_BYTES // size)


def write_records(task, batches, folder):
    """Made-up records: numbers uniform in [0, 1), ids uniform over the vocabulary; random labels."""
    import numpy

    generator = numpy.random.Generator(numpy.random.PCG64(CLASSES_SEED))
    count = record_count(task, batches)
    output = shapes(task)[-1]
    classes = output[-1] if task.loss == "token_cross_entropy" else math.prod(output)
    limits = {"inputs.i32": task.vocabulary, "labels.i32": classes}
    for name, kind, shape in data_files(task):
        if kind == "int32":
            values = generator.integers(0, limits[name], (count, *shape)).astype(numpy.int32)
        else:
            values = generator.random((count, *shape), dtype=numpy.float32)
        values.tofile(folder / name)


def read_records(task, folder):
    """What write_records wrote. Large files are mapped, so that the processes share their memory."""
    import numpy

    result = []
    for name, kind, shape in data_files(task):
        path = folder / name
        if path.stat().st_size > 2 * LEAST_DATA_BYTES:
            values = numpy.memmap(path, kind, "c")
            values[::1024].sum()  # in memory before the first step
        else:
            values = numpy.fromfile(path, kind)
        result.append(numpy.asarray(values).reshape(-1, *shape))
    return result


def cpp_header(task):
    """The network as a type of ours."""
    layers = ",\n    ".join(layer.cpp(shape) for layer, shape in zip(task.layers, shapes(task)))
    sides = ", ".join(map(str, task.input))
    shape = f"pg::token_ids({sides}, {task.vocabulary})" if task.vocabulary else f"pg::shape{{{sides}}}"
    return (f"// {task.source}\n#pragma once\n#include <pergrad/pergrad.hpp>\n"
            "namespace task {\nnamespace pg = pergrad;\n"
            f"using network = pg::network<{shape},\n    {layers}>;\n"
            f"using loss = pg::{task.loss}{'<>' if task.loss == 'token_cross_entropy' else ''};\n"
            f"inline constexpr bool update = {str(task.update).lower()};\n"
            f"static_assert(network::parameter_count == {parameter_count(task)});\n}}  // namespace task\n")


def torch_module(task, flavour="torch"):
    """(module, its parameters in the order of weights); flavours: see layers.py"""
    from torch import nn

    parts = [layer.torch(shape, flavour) for layer, shape in zip(task.layers, shapes(task))]
    for layer, (module, _) in zip(task.layers, parts):
        if getattr(layer, "tied_to_first", False):
            module.weight = parts[0][0].weight
    parameters = [p for _, parameters in parts for p in parameters]
    parameters.sort(key=lambda p: not p.requires_grad)  # as the flat vector has them
    return nn.Sequential(*[module for module, _ in parts]), parameters


def jax_outputs(task):
    """f(parameters, x) for a batch x, images channels-last; parameters as jax_parameters gives them."""
    steps = list(zip(task.layers, shapes(task)))

    if any(weight.frozen for weight in flat_order(task)):
        raise NotImplementedError("frozen parameters are not written for JAX")

    def outputs(parameters, x):
        for (layer, shape), values in zip(steps, parameters):
            x = layer.jax(shape, x, *(parameters[0] if getattr(layer, "tied_to_first", False) else values))
        return x

    return outputs


def _flattened_shapes(task):
    """For every layer the image that was flattened into its input, or None."""
    result, image = [], None
    for layer, shape in zip(task.layers, shapes(task)):
        result.append(image)
        image = shape if isinstance(layer, Flatten) and len(shape) == 3 else None
    return result


def jax_parameters(task, flat):
    """For every layer the tuple of its tensors as JAX's users shape them: [h, w, in, out] and [in, out]."""
    result, start = [], 0
    for group, image in zip(weights(task), _flattened_shapes(task)):
        values = []
        for weight in group:
            part = flat[start:start + weight.count].reshape(weight.shape)
            start += weight.count
            values.append(weight.to_jax(part, image).copy())
        result.append(tuple(values))
    return result


def flat_parameters(task, parameters):
    """The inverse of jax_parameters."""
    import numpy

    return numpy.concatenate([weight.from_jax(numpy.asarray(values), image).ravel()
                              for group, tensors, image in zip(weights(task), parameters, _flattened_shapes(task))
                              for weight, values in zip(group, tensors)])
