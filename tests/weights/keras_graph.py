"""A Keras graph as TensorFlow.js stores it, computed in float64 with numpy alone; and small graphs made up."""

import json
from pathlib import Path

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view


def stored(folder):
    """Layers in order, and tensors by name, of a folder with `model.json`."""
    model = json.loads((folder / "model.json").read_text())
    (group,) = model["weightsManifest"]
    data = np.frombuffer(b"".join((folder / name).read_bytes() for name in group["paths"]), np.float32)
    tensors, at = {}, 0
    for weight in group["weights"]:
        size = int(np.prod(weight["shape"]))
        tensors[weight["name"]] = data[at : at + size].reshape(weight["shape"]).astype(np.float64)
        at += size
    return model["modelTopology"]["model_config"]["config"]["layers"], tensors


def run(folder, images):
    """The softmax of the graph for images (N, H, W, 3) as Keras reads them."""
    layers, tensors = stored(folder)
    maps = {}
    for layer in layers:
        name, kind, config = layer["name"], layer["class_name"], layer["config"]
        given = [maps[node[0]] for node in layer["inbound_nodes"][0]] if layer["inbound_nodes"] else [images]
        maps[name] = _layer(kind, config, [tensors.get(f"{name}/{leaf}") for leaf in _LEAVES[kind]], *given)
    return maps[layers[-1]["name"]]


_BN = ("gamma", "beta", "moving_mean", "moving_variance")
_LEAVES = {"Conv2D": ("kernel", "bias"), "Dense": ("kernel", "bias"), "BatchNormalization": _BN} | dict.fromkeys(
    ("InputLayer", "ZeroPadding2D", "Activation", "MaxPooling2D", "Add", "GlobalAveragePooling2D"), ()
)


def _layer(kind, config, weights, x, other=None):  # noqa: PLR0911, a row for each kind
    match kind:
        case "InputLayer":
            return x.astype(np.float64)
        case "ZeroPadding2D":
            return np.pad(x, [(0, 0), *map(tuple, config["padding"]), (0, 0)])
        case "Conv2D":
            kernel, bias = weights
            edge = kernel.shape[0] // 2 if config["padding"] == "same" else 0
            x = np.pad(x, [(0, 0), (edge, edge), (edge, edge), (0, 0)])
            step = config["strides"][0]
            windows = sliding_window_view(x, kernel.shape[:2], (1, 2))[:, ::step, ::step]
            return np.tensordot(windows, kernel, ((4, 5, 3), (0, 1, 2))) + bias
        case "BatchNormalization":
            gamma, beta, mean, variance = weights
            return gamma * (x - mean) / np.sqrt(variance + config["epsilon"]) + beta
        case "Activation":
            return np.maximum(x, 0)
        case "MaxPooling2D":
            return sliding_window_view(x, (3, 3), (1, 2))[:, ::2, ::2].max((4, 5))
        case "Add":
            return x + other
        case "GlobalAveragePooling2D":
            return x.mean((1, 2))
        case "Dense":
            scores = np.exp(x @ weights[0] + weights[1])
            return scores / scores.sum(1, keepdims=True)


class Maker:
    """Writes a graph with the names and the order of Keras's ResNet-50, of any widths and numbers of units."""

    def __init__(self, widths=(4, 8, 8, 12), blocks=(2, 1, 2, 1), classes=7, seed=0):
        self.rng = np.random.default_rng(seed)
        self.layers, self.tensors = [], {}
        x = self.add("InputLayer", "input_1", {})
        x = self.add("ZeroPadding2D", "conv1_pad", {"padding": [[3, 3], [3, 3]]}, x)
        x, channels = self.conv(x, "conv1", "bn_conv1", 3, widths[0], 7, 2, "valid"), widths[0]
        x = self.add("ZeroPadding2D", "pool1_pad", {"padding": [[1, 1], [1, 1]]}, self.relu(x))
        x = self.add("MaxPooling2D", "max_pooling2d", {"pool_size": [3, 3], "strides": [2, 2]}, x)
        for stage, (width, units) in enumerate(zip(widths, blocks, strict=True), 2):
            for place in range(units):
                name = f"{stage}{'abcdef'[place]}_branch"
                stride = 2 if stage > 2 and place == 0 else 1
                y = self.relu(self.conv(x, f"res{name}2a", f"bn{name}2a", channels, width, 1, stride))
                y = self.relu(self.conv(y, f"res{name}2b", f"bn{name}2b", width, width, 3, 1, "same"))
                y = self.conv(y, f"res{name}2c", f"bn{name}2c", width, 4 * width, 1, 1)
                h = self.conv(x, f"res{name}1", f"bn{name}1", channels, 4 * width, 1, stride) if place == 0 else x
                x, channels = self.relu(self.add("Add", f"add_{name}", {}, y, h)), 4 * width
        x = self.add("GlobalAveragePooling2D", "avg_pool", {}, x)
        self.tensors["fc1000/kernel"] = self.rng.normal(0, 0.5, (channels, classes))
        self.tensors["fc1000/bias"] = self.rng.normal(0, 0.5, classes)
        self.add("Dense", "fc1000", {"units": classes, "activation": "softmax"}, x)

    def add(self, kind, name, config, *inputs):
        nodes = [[[x, 0, 0, {}] for x in inputs]] if inputs else []
        self.layers.append({"class_name": kind, "name": name, "config": config, "inbound_nodes": nodes})
        return name

    def relu(self, x):
        return self.add("Activation", f"activation_{len(self.layers)}", {"activation": "relu"}, x)

    def conv(self, x, name, bn, into, out, kernel, stride, padding="valid"):
        spread = (2 / (kernel * kernel * into)) ** 0.5 / (64 if into == 3 else 1)  # pixels are large numbers
        self.tensors[f"{name}/kernel"] = self.rng.normal(0, spread, (kernel, kernel, into, out))
        self.tensors[f"{name}/bias"] = self.rng.normal(0, 0.3, out)
        for leaf in _BN:
            drawn = (
                self.rng.uniform(0.5, 1.5, out)
                if leaf in ("gamma", "moving_variance")
                else self.rng.normal(0, 0.3, out)
            )
            self.tensors[f"{bn}/{leaf}"] = drawn
        config = {"kernel_size": [kernel] * 2, "strides": [stride] * 2, "padding": padding, "filters": out}
        x = self.add("Conv2D", name, config, x)
        return self.add("BatchNormalization", bn, {"epsilon": 0.001}, x)

    def write(self, folder, shard=9_999):
        folder.mkdir(parents=True)
        ordered = sorted(self.tensors)  # as the converter does, whatever the order of the layers
        data = b"".join(self.tensors[name].astype("<f4").tobytes() for name in ordered)
        paths = [f"group1-shard{i}.bin" for i in range(-(-len(data) // shard))]
        for i, path in enumerate(paths):
            (folder / path).write_bytes(data[i * shard : (i + 1) * shard])
        weights = [{"name": n, "shape": list(self.tensors[n].shape), "dtype": "float32"} for n in ordered]
        config = {"model_config": {"class_name": "Model", "config": {"layers": self.layers}}}
        model = {"modelTopology": config, "weightsManifest": [{"paths": paths, "weights": weights}]}
        Path(folder / "model.json").write_text(json.dumps(model))
        return folder
