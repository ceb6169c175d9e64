# SPDX-License-Identifier: Apache-2.0
"""Train the digits model with TVM and write it as ONNX.

    python models/digits/train.py [FILE]

Relax computes the gradient of the network, and TVM compiles the training step for this computer: the compiler
trains the models that it deploys. Everything runs in one thread, in a fixed order and from a fixed seed, so the same
machine writes the same bytes again.
"""

import sys
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
import tvm
from onnx import TensorProto, helper, numpy_helper
from tvm import relax
from tvm.relax.training import SetupTrainer, Trainer
from tvm.relax.training.loss import CrossEntropyLoss
from tvm.relax.training.optimizer import MomentumSGD

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[2]))

from models.digits.data import Images, training
from utvm.compiler.host import host_target

MODEL = Path(__file__).with_name("digits.onnx")

_SEED = 7
_BATCH = 32
_EPOCHS = 60
_AVERAGED = 20  # The model is the mean of the weights after each of the last epochs.
_LEARNING_RATE = 0.03
_WEIGHT_DECAY = 5e-4
_BRIGHTEST = 16.0  # A power of two: dividing the first weights by it rounds nothing.

_SHAPES = {
    "conv1": (16, 1, 3, 3),
    "bias1": (1, 16, 1, 1),
    "conv2": (32, 16, 3, 3),
    "bias2": (1, 32, 1, 1),
    "dense": (128, 10),
    "bias3": (10,),
}

Weights = dict[str, npt.NDArray[np.float32]]


def network() -> Any:
    """Relax module of the network, in the form that TVM's trainer expects."""
    operators = relax.op
    image = relax.Var("image", relax.TensorType((_BATCH, 1, 8, 8), "float32"))
    weights = {name: relax.Var(name, relax.TensorType(shape, "float32")) for name, shape in _SHAPES.items()}
    builder = relax.BlockBuilder()
    with builder.function("backbone", [image, *weights.values()]):
        with builder.dataflow():
            value = image
            for layer in ("1", "2"):
                value = builder.emit(operators.nn.conv2d(value, weights[f"conv{layer}"], padding=1))
                value = builder.emit(operators.add(value, weights[f"bias{layer}"]))
                value = builder.emit(operators.nn.relu(value))
                value = builder.emit(operators.nn.max_pool2d(value, (2, 2), (2, 2)))
            value = builder.emit(operators.reshape(value, (_BATCH, 128)))
            value = builder.emit(operators.matmul(value, weights["dense"]))
            logits = builder.emit_output(operators.add(value, weights["bias3"]))
        builder.emit_func_output(logits)
    return builder.get().with_attrs({"param_num": len(_SHAPES), "state_num": 0})


def build_trainer() -> Trainer:
    """Compile the training step."""
    setup = SetupTrainer(
        CrossEntropyLoss(reduction="mean"),
        MomentumSGD(_LEARNING_RATE, 0.9, 0, _WEIGHT_DECAY, nesterov=True),
        [relax.TensorType((_BATCH, 10), "float32"), relax.TensorType((_BATCH,), "int64")],
    )
    module = setup(network())
    machine = relax.VirtualMachine(tvm.compile(module, host_target()), tvm.cpu())
    return Trainer(module, machine, tvm.cpu(), False)


def first_weights(generator: np.random.Generator) -> Weights:
    """Draw initial weights that preserve the variance of activations (He et al., 2015)."""
    inputs = {"conv1": 9, "conv2": 144, "dense": 128}
    return {
        name: (
            generator.standard_normal(shape) * np.sqrt(2 / inputs[name]) if name in inputs else np.zeros(shape)
        ).astype(np.float32)
        for name, shape in _SHAPES.items()
    }


def shift(images: Images, generator: np.random.Generator) -> Images:
    """Shift each image by up to one pixel in each direction."""
    padded = np.pad(images, ((0, 0), (0, 0), (1, 1), (1, 1)))
    offsets = generator.integers(0, 3, (len(images), 2))
    return np.stack([image[:, y : y + 8, x : x + 8] for image, (y, x) in zip(padded, offsets, strict=True)])


def train() -> Weights:
    """Train the network on the training images."""
    generator = np.random.default_rng(_SEED)
    images, labels = training()
    images = images / np.float32(_BRIGHTEST)
    trainer = build_trainer()
    trainer.load_params(first_weights(generator))
    total = {name: np.zeros(shape) for name, shape in _SHAPES.items()}
    for epoch in range(_EPOCHS):
        order = generator.permutation(len(images))
        losses = []
        for start in range(0, len(order) - _BATCH + 1, _BATCH):
            batch = order[start : start + _BATCH]
            losses.append(float(trainer.update(shift(images[batch], generator), labels[batch]).numpy()))
        print(f"epoch {epoch + 1} of {_EPOCHS}: loss {np.mean(losses):.4f}")
        if epoch >= _EPOCHS - _AVERAGED:
            for name, value in trainer.export_params().items():
                total[name] += value.numpy()
    return {name: (value / _AVERAGED).astype(np.float32) for name, value in total.items()}


def to_onnx(weights: Weights) -> onnx.ModelProto:
    """Write the network for one image as ONNX, with pixels from 0 to 16 and logits as its output."""
    convolution = {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1]}
    pooling = {"kernel_shape": [2, 2], "strides": [2, 2]}
    nodes = [
        helper.make_node("Conv", ["image", "conv1", "bias1"], ["conv1_out"], "conv1", **convolution),
        helper.make_node("Relu", ["conv1_out"], ["relu1_out"], "relu1"),
        helper.make_node("MaxPool", ["relu1_out"], ["pool1_out"], "pool1", **pooling),
        helper.make_node("Conv", ["pool1_out", "conv2", "bias2"], ["conv2_out"], "conv2", **convolution),
        helper.make_node("Relu", ["conv2_out"], ["relu2_out"], "relu2"),
        helper.make_node("MaxPool", ["relu2_out"], ["pool2_out"], "pool2", **pooling),
        helper.make_node("Flatten", ["pool2_out"], ["flat"], "flatten"),
        helper.make_node("Gemm", ["flat", "dense", "bias3"], ["logits"], "dense"),
    ]
    stored = weights | {
        "conv1": weights["conv1"] / np.float32(_BRIGHTEST),
        "bias1": weights["bias1"].ravel(),
        "bias2": weights["bias2"].ravel(),
    }
    graph = helper.make_graph(
        nodes,
        "digits",
        [helper.make_tensor_value_info("image", TensorProto.FLOAT, [1, 1, 8, 8])],
        [helper.make_tensor_value_info("logits", TensorProto.FLOAT, [1, 10])],
        [numpy_helper.from_array(value, name) for name, value in stored.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)
    onnx.checker.check_model(model, full_check=True)
    return model


def main() -> None:
    """Train, and write the model to the file named on the command line; by default, overwrite the committed model."""
    target = Path(sys.argv[1]) if len(sys.argv) > 1 else MODEL
    target.write_bytes(to_onnx(train()).SerializeToString(deterministic=True))
    print(f"wrote {target}")


if __name__ == "__main__":
    main()
